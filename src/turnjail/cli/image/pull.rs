//! `turnjail image pull`: from a registry to an image.

use std::process::ExitCode;

use turnjail_images::{ImportOptions, Reference};
use turnjail_pull::{Fetching, Login, Registry, fetch};
use zeroize::Zeroizing;

use super::arguments::PullArguments;
use super::progress::Bars;
use super::{bring, open};
use crate::cli::{failure, session};
use crate::config::{self, ForImages};
use crate::error::{CliError, Exit};

/// The most that a file of certificate authorities may hold.
const CA_BYTES: usize = 4 * 1024 * 1024;

/// Pulls.
pub fn pull(
    settings: &ForImages,
    arguments: &PullArguments,
    json: bool,
) -> Result<ExitCode, CliError> {
    let bars = Bars::new(json);
    let options = ImportOptions {
        limits: settings.limits,
        platform: arguments.platform.clone(),
        progress: Some(&bars),
        ..ImportOptions::default()
    };
    let store = open(settings)?;
    let fetched = session::block_on(async {
        let registry = registry(settings, &arguments.name).await?;
        let fetched = fetch(&store, &arguments.name, &registry, &options, &bars).await;
        fetched.map_err(|error| failure::pull(&error))
    });
    // Cleared before anything is said.
    if fetched.is_err() {
        bars.finish();
    }
    let imported = fetched?.import(&options);
    bars.finish();
    bring::told(&imported.map_err(|error| failure::image(&error))?, json)
}

/// How the image's registry is spoken to, by the configuration.
async fn registry(settings: &ForImages, name: &Reference) -> Result<Registry, CliError> {
    let Some(set) = settings.registries.iter().find(|one| one.host == name.domain()) else {
        return Ok(Registry::default());
    };
    let setting = format!("registries: password of {}", set.host);
    let password = config::credential(&set.password).for_host(&setting).await;
    let password = password.map_err(|error| {
        let remedy = "make the source of the password give one";
        CliError::new(Exit::Usage, "registry-password", error, remedy)
    })?;
    let login = set.username.clone().map(|username| Login {
        username,
        password: Zeroizing::new(password.map_or_else(String::new, |p| p.expose().to_owned())),
    });
    let authorities = set.ca_file.as_deref().map(|path| {
        turnjail_broker::read_file(path, CA_BYTES).map_err(|error| {
            CliError::usage(
                format_args!("the file of authorities {} cannot be read: {error}", path.display()),
                "correct ca_file of [[registries]]",
            )
        })
    });
    let authorities = authorities.transpose()?.map(|bytes| bytes.to_vec()).unwrap_or_default();
    Ok(Registry { login, allow_http: set.allow_http, authorities })
}

impl Fetching for Bars {
    fn part(&self, number: usize, of: usize, bytes: u64) {
        self.start(format!("fetching part {number}/{of}"), bytes);
    }

    fn advance(&self, bytes: u64) {
        self.more(bytes);
    }
}
