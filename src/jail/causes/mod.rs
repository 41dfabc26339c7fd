//! What can stand in the way of jails: one table for the errors of a start and for `doctor`, with the
//! remedy for this distribution and these surroundings.

pub mod distribution;
pub mod evidence;
pub mod surroundings;
pub mod table;

use distribution::Family;
use evidence::Evidence;
use surroundings::Kind;
use table::{Cause, Verdict};

/// Where a remedy fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Everywhere.
    Always,
    /// On these distributions.
    On(Family),
    /// Inside of these surroundings.
    In(Kind),
}

/// A cause on a host, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// A stable word.
    pub code: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// What is lost.
    pub lost: String,
    /// What to do: one line.
    pub remedy: String,
}

/// The cause in words for this host. `words` are the values of names in its texts.
pub fn advise(cause: &Cause, evidence: &Evidence, words: &[(&str, &str)]) -> Advice {
    let fits = |when: &When| match *when {
        When::Always => true,
        When::On(family) => Family::of(evidence) == family,
        When::In(kind) => Kind::of(evidence) == kind,
    };
    let remedy = cause.remedies.iter().find(|(when, _)| fits(when)).map_or("", |(_, text)| text);
    let text = |template: &str| render(template, evidence, words);
    Advice {
        code: cause.code,
        verdict: cause.verdict,
        why: text(cause.why),
        lost: text(cause.lost),
        remedy: text(remedy),
    }
}

/// Fills in the names of a template. One that nobody knows stays as it is.
fn render(template: &str, evidence: &Evidence, words: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in words {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    let family = Family::of(evidence);
    text = command(&text, "{sysctl ", &|setting| family.sysctl(setting));
    text = command(&text, "{boot ", &|argument| family.boot(argument));
    text = text.replace("{program}", &evidence.program());
    text.replace("{nest}", Kind::of(evidence).nest())
}

/// Replaces `{command argument}` by what `expand` makes of the argument.
fn command(text: &str, opening: &str, expand: &dyn Fn(&str) -> String) -> String {
    let Some((before, rest)) = text.split_once(opening) else { return text.to_owned() };
    let Some((argument, after)) = rest.split_once('}') else { return text.to_owned() };
    format!("{before}{}{}", expand(argument), command(after, opening, expand))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(release: &str) -> (tempfile::TempDir, Evidence) {
        let root = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(root.path().join("etc")).expect("a directory");
        std::fs::write(root.path().join("etc/os-release"), release).expect("a file");
        let evidence = Evidence::below(root.path());
        (root, evidence)
    }

    #[test]
    fn a_remedy_is_a_command_of_the_distribution() {
        for (release, expected) in [
            ("ID=debian\n", "sudo sysctl -p"),
            ("ID=ubuntu\nID_LIKE=debian\n", "sudo sysctl -p"),
            ("ID=nixos\n", "security.allowUserNamespaces"),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "/etc/sysctl.d/60-turnjail.conf"),
            ("", "user.max_net_namespaces=15000"),
        ] {
            let (_root, evidence) = host(release);
            let words = [("limit", "max_net_namespaces")];
            let advice = advise(&table::LIMIT_ZERO, &evidence, &words);
            assert!(advice.remedy.contains(expected), "{release}: {}", advice.remedy);
            assert_eq!(advice.why.matches("max_net_namespaces").count(), 1);
        }
        for (release, expected) in [
            ("ID=debian\n", "update-grub"),
            ("ID=fedora\n", "grubby"),
            ("ID=alpine\n", "update-extlinux"),
            ("ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n", "grub2-mkconfig"),
            ("ID=arch\n", "grub-mkconfig"),
            ("ID=nixos\n", "boot.kernelParams"),
            ("ID=void\n", "the kernel's command line"),
        ] {
            let (_root, evidence) = host(release);
            let advice = advise(&table::LANDLOCK_OFF, &evidence, &[("lsm", "yama,bpf")]);
            assert!(advice.remedy.contains(expected), "{release}: {}", advice.remedy);
            assert!(advice.remedy.contains("lsm=landlock,yama,bpf"), "{}", advice.remedy);
        }
    }

    #[test]
    fn every_text_is_one_line_and_complete() {
        let (_root, evidence) = host("ID=debian\n");
        let names = [
            "limit", "label", "value", "used", "path", "free", "mount", "kind", "bytes", "most",
            "groups", "parent", "lacks", "abi", "lsm", "user",
        ];
        let words: Vec<(&str, &str)> = names.iter().map(|name| (*name, "X")).collect();
        for cause in table::ALL {
            let advice = advise(cause, &evidence, &words);
            for text in [&advice.why, &advice.lost, &advice.remedy] {
                assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?}");
                assert!(!text.contains("  ") && !text.ends_with('.'), "{text:?}");
                let literal = text.replace("{ userns, }", "").replace("{type: Unconfined}", "");
                assert!(!literal.contains(['{', '}']), "a name is left: {text:?}");
            }
            assert!(cause.remedies.last().is_some_and(|(when, _)| *when == When::Always));
            assert!(
                cause.code.chars().all(|c| c.is_ascii_lowercase() || "-0123456789".contains(c))
            );
        }
    }
}
