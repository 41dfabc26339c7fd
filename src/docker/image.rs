//! Images of the engine, as `image inspect` tells of them. Nothing is ever pulled.

use serde::Deserialize;
use serde_json::Value;
use turnjail_driver::image::{ImageFacts, check_reference};
use turnjail_driver::{DriverError, ImageProtocol};
use turnjail_protocol::PROTOCOL_LABEL;

use crate::client::Client;
use crate::fault;

/// What the driver needs of an inspected image. Engines leave out or set to null what is empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Image {
    /// `sha256:...` with Docker, without the prefix with podman.
    id: String,
    os: Option<String>,
    architecture: Option<String>,
    config: Option<Config>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    /// Not necessarily texts: an image is anybody's.
    labels: Option<serde_json::Map<String, Value>>,
}

impl Image {
    /// Looks an image up in the engine.
    pub async fn find(client: &Client, reference: &str) -> Result<Self, DriverError> {
        check_reference(reference)?;
        let answer = client.ask(&["image", "inspect", reference]).await?;
        if answer.ok() {
            return Self::parse(&answer.stdout, reference);
        }
        if let Some(error) = fault::known(&answer.stderr) {
            return Err(error);
        }
        let said = fault::first_line(&answer.stderr);
        // Docker, podman and turnjail in this order.
        let absent = ["no such image", "image not known", "not in the store"];
        if !answer.killed() && absent.iter().any(|words| said.to_lowercase().contains(words)) {
            let program = client.shown();
            let remedy = if is_builtin(reference) {
                format!("run `turnjail docker save turnjail-worker | {program} load`")
            } else {
                format!("load or pull it first, for example: {program} pull {reference}")
            };
            return Err(fault::image(format!("{program} has no image {reference:?}"), &remedy));
        }
        if !answer.killed() && said.contains("invalid reference format") {
            return Err(fault::image(
                format!("image {reference:?} is no reference: {said}"),
                "write name[:tag][@sha256:...], for example busybox:1.36",
            ));
        }
        Err(fault::start(
            "docker-unreachable",
            format!("{} image inspect fails: {said}", client.shown()),
            "look at the engine's log",
        ))
    }

    fn parse(json: &[u8], reference: &str) -> Result<Self, DriverError> {
        let images: Result<Vec<Self>, _> = serde_json::from_slice(json);
        match images.map(|images| images.into_iter().next()) {
            Ok(Some(image)) => Ok(image),
            _ => Err(fault::start(
                "docker-answer",
                format!("what the docker program says of image {reference:?} is not understood"),
                "name Docker's or podman's own program as docker.program",
            )),
        }
    }

    /// The checks that all drivers make.
    pub fn check(&self, reference: &str) -> Result<(), DriverError> {
        let config = self.config.as_ref();
        let names = |list: Option<&Vec<String>>| {
            list.and_then(|list| list.first()).is_some_and(|first| !first.is_empty())
        };
        let has_program = names(config.and_then(|config| config.entrypoint.as_ref()))
            || names(config.and_then(|config| config.cmd.as_ref()));
        let facts = ImageFacts {
            reference,
            os: self.os.as_deref().filter(|os| !os.is_empty()),
            architecture: self.architecture.as_deref().filter(|name| !name.is_empty()),
            has_program,
        };
        facts.check()
    }

    pub fn protocol(&self) -> ImageProtocol {
        let labels = self.config.as_ref().and_then(|config| config.labels.as_ref());
        let label = labels.and_then(|labels| labels.get(PROTOCOL_LABEL)).and_then(Value::as_str);
        ImageProtocol::of_label(label)
    }

    /// The identity of the image, `sha256:...`: of its configuration, as engines name images.
    pub fn digest(&self) -> Option<String> {
        let hex = self.id.trim_start_matches("sha256:");
        (!hex.is_empty()).then(|| format!("sha256:{hex}"))
    }
}

/// Whether it is the worker inside turnjail, which no registry has.
fn is_builtin(reference: &str) -> bool {
    reference.strip_suffix(":latest").unwrap_or(reference) == "turnjail-worker"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_engines_leave_out_is_no_error() {
        let parse = |json: &str| Image::parse(json.as_bytes(), "x").expect(json);
        let bare = parse("[{\"Id\":\"ab\",\"Config\":null,\"RootFS\":{}}]");
        assert_eq!(bare.protocol(), ImageProtocol::Unlabelled);
        assert_eq!(bare.digest().as_deref(), Some("sha256:ab"));
        assert!(bare.check("x").unwrap_err().to_string().contains("no program"));
        let nulls = "[{\"Id\":\"sha256:ab\",\"Os\":\"linux\",\"Architecture\":\"\",\"Config\":{\
             \"Entrypoint\":null,\"Cmd\":[\"/a\"],\"Labels\":null}}]";
        assert!(parse(nulls).check("x").is_ok());
        let odd = format!("[{{\"Config\":{{\"Labels\":{{\"{PROTOCOL_LABEL}\":3}}}}}}]");
        assert_eq!(parse(&odd).protocol(), ImageProtocol::Unlabelled);
        let two = format!("[{{\"Config\":{{\"Labels\":{{\"{PROTOCOL_LABEL}\":\"2\"}}}}}}]");
        assert_eq!(parse(&two).protocol(), ImageProtocol::Version(2));
    }

    #[test]
    fn an_answer_that_is_none_is_refused() {
        for json in ["", "[]", "{}", "[1]", "null"] {
            assert_eq!(Image::parse(json.as_bytes(), "x").unwrap_err().code(), "docker-answer");
        }
    }
}
