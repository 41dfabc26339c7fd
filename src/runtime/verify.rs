//! Whether the image's worker is new enough for the options.

use turnjail_driver::{ContainerDriver, ImageProtocol};
use turnjail_protocol::{PROTOCOL_LABEL, SANDBOX_PROTOCOL};

use crate::SetupError;
use crate::settings::Settings;

/// Checks that the driver can run the image, and that its worker knows every option in use: an older
/// one would ignore new fields of the turn, and could write a channel's history into a shared workspace.
pub(crate) async fn verify_image(
    driver: &dyn ContainerDriver,
    settings: &Settings,
) -> Result<(), SetupError> {
    driver.verify(&settings.image).await?;
    if settings.protocol_2.is_empty() {
        return Ok(());
    }
    let found = driver.image_protocol(&settings.image).await?;
    let options = settings.protocol_2.join(", ");
    let image = &settings.image;
    let (is, remedy) = match found {
        ImageProtocol::Version(version) if version >= SANDBOX_PROTOCOL => return Ok(()),
        ImageProtocol::Version(version) => (
            format!("image {image} has a worker of protocol {version}"),
            format!("use an image of a newer worker, or do without {options}"),
        ),
        ImageProtocol::Unlabelled => (
            format!("image {image} has no label {PROTOCOL_LABEL}, which makes it an older worker"),
            format!(
                "rebuild the image from a current worker with its label, or do without {options}"
            ),
        ),
        _ => (
            format!("driver {} cannot tell the worker protocol of image {image}", driver.name()),
            format!("use a driver that can, or do without {options}"),
        ),
    };
    Err(SetupError::Protocol {
        problem: format!("{is}, but {options} needs protocol {SANDBOX_PROTOCOL}"),
        remedy,
    })
}
