//! `[images."reference"]`.

use turnjail_jail::{ImageSettings, Profile};

use super::*;

fn settings(table: &str) -> ImageSettings {
    let settings = plain(&format!("{LEAST}\n[images.\"python:3\"]\n{table}\n"));
    let [image] = &settings.images[..] else { panic!("{:?}", settings.images) };
    assert_eq!(image.reference, "python:3");
    image.settings
}

#[test]
fn an_image_is_named_by_its_reference() {
    assert_eq!(settings(""), ImageSettings::default());
    let all =
        "profile = \"general\"\nloopback = true\naddress_space_limit = true\ndata_limit = false";
    let wanted = ImageSettings {
        profile: Some(Profile::General),
        loopback: true,
        address_space_limit: Some(true),
        data_limit: Some(false),
    };
    assert_eq!(settings(all), wanted);
}

#[test]
fn what_cannot_be_is_found_before_anything_starts() {
    let cause = |table: &str| {
        let [finding] = &findings(&format!("{LEAST}\n{table}\n"))[..] else { panic!("{table}") };
        finding.cause.clone()
    };
    let conflict = cause("[images.a]\nprofile = \"sealed\"\nloopback = true");
    assert!(conflict.contains("no loopback"), "{conflict}");
    assert!(cause("[images.\"-a\"]\n").contains("no image reference"));
    assert!(cause("[images.a]\nprofile = \"open\"").contains("profile is a string"));
    assert!(cause("[images.a]\nnetwork = true").contains("no setting \"network\""));
    assert!(cause("[images]\na = 1").contains("not allowed"));
}
