//! The documents say what is true: the map names every file, commands and exit codes are those of the
//! program, and what is shown as a configuration is one.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TURNJAIL: &str = env!("CARGO_BIN_EXE_turnjail");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The contents of every block of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current: Option<(bool, String)> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), current.take()) {
            (Some(opened), None) => current = Some((opened == language, String::new())),
            (Some(_), Some((wanted, block))) => {
                if wanted {
                    found.push(block);
                }
            }
            (None, Some((wanted, block))) => current = Some((wanted, block + line + "\n")),
            (None, None) => {}
        }
    }
    found
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(TURNJAIL).args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn is_rust(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rs")
}

/// The sources of the product: what is built from `directory`, tests and benchmarks left out.
fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if !["tests", "benches", "examples", "target"].contains(&name) {
                sources(&path, into);
            }
        } else if is_rust(name) && !["tests.rs", "build.rs"].contains(&name) {
            into.push(path);
        }
    }
}

/// The first sentence of a file's own documentation.
fn first_sentence(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
    let text = lines.join(" ");
    text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first).to_owned()
}

#[test]
fn the_map_names_every_source_file_and_no_other() {
    let contributing = read("CONTRIBUTING.md");
    let mut named = BTreeSet::new();
    let mut directory = None;
    for line in contributing.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            directory = heading.split_once("/:").map(|(directory, _)| directory.to_owned());
        } else if let (Some(directory), Some(file)) = (&directory, line.split("  ").next())
            && is_rust(file)
            && directory != "tests"
        {
            assert!(
                named.insert(format!("{directory}/{file}")),
                "{directory}/{file} is named twice"
            );
        }
    }
    let root = root();
    let mut files = Vec::new();
    for directory in ["build", "src", "worker"] {
        sources(&root.join(directory), &mut files);
    }
    let there: BTreeSet<_> = files
        .iter()
        .map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
        .collect();
    let missing: Vec<_> = there
        .difference(&named)
        .map(|file| format!("{file}  {}", first_sentence(&root.join(file))))
        .collect();
    assert!(missing.is_empty(), "add to the map in CONTRIBUTING.md:\n{}", missing.join("\n"));
    let gone: Vec<_> = named.difference(&there).collect();
    assert!(gone.is_empty(), "remove from the map in CONTRIBUTING.md: {gone:?}");
}

#[test]
fn every_command_and_exit_code_is_documented_as_it_is() {
    let page = read("docs/command-line.md");
    let help = help(&[]);
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let commands: Vec<_> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 5);
    for command in commands.into_iter().filter(|command| *command != "help") {
        assert!(page.contains(&format!("`turnjail {command}")), "{command}");
    }
    let rows = page.split("## Exit codes").nth(1).unwrap().split("## ").next().unwrap();
    let documented: BTreeSet<u8> =
        rows.lines().filter_map(|row| row.split('|').nth(1)?.trim().parse().ok()).collect();
    let codes = help.split("Exit codes:").nth(1).unwrap();
    let mut told: BTreeSet<u8> =
        codes.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    // Its line stands within that of 130.
    assert!(codes.contains("143: by SIGTERM"));
    told.insert(143);
    assert_eq!(documented, told);
}

#[test]
fn every_option_of_a_turn_is_documented() {
    let (page, help) = (read("docs/command-line.md"), help(&["turn"]));
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<_> = options.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(options.contains(&"channel") && options.len() > 6, "{options:?}");
    for option in options {
        assert!(page.contains(&format!("`--{option}")), "--{option}");
    }
}

#[test]
fn what_is_shown_as_a_configuration_is_one() {
    let shown = blocks(&read("README.md"), "toml");
    assert!(!shown.is_empty());
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("turnjail.toml");
    for text in shown {
        fs::write(&file, &text).unwrap();
        let check = Command::new(TURNJAIL)
            .args(["config", "check", "--config"])
            .arg(&file)
            .env_clear()
            .env("HOME", home.path())
            .output()
            .unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    }
}

#[test]
fn the_embedding_example_is_the_one_that_is_compiled() {
    let compiled: BTreeSet<_> = include_str!("../lib.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .flat_map(str::split_whitespace)
        .collect();
    let shown = blocks(&read("README.md"), "rust");
    assert_eq!(shown.len(), 1);
    for word in shown[0].split_whitespace() {
        assert!(compiled.contains(word), "{word} is not in the example of the library");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = root();
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/command-line.md",
        "docs/configuration.md",
        "docs/hosts.md",
    ] {
        let text = read(page);
        let directory = root.join(page).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let outside = link.starts_with("http") || link.starts_with('#');
            assert!(outside || directory.join(link).exists(), "{page}: {link}");
        }
    }
}

/// Every number of the catalogue of attacks.
const ATTACKS: [u32; 40] = [
    1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 18, 20, 24, 27, 30, 31, 32, 33, 34, 35, 36, 37, 39,
    40, 42, 43, 46, 47, 48, 49, 50, 51, 52, 53, 54, 56, 60,
];

/// Every Rust file below a directory.
fn every_rust_file(directory: &Path, into: &mut String) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "target" {
            every_rust_file(&path, into);
        } else if is_rust(&name) {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_table_of_attacks_names_a_test_for_every_number() {
    let mut code = String::new();
    for directory in ["src", "tests", "worker"] {
        every_rust_file(&root().join(directory), &mut code);
    }
    let words: BTreeSet<&str> =
        code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let table = read("docs/attacks.md");
    let mut rows = BTreeSet::new();
    for line in table.lines().filter(|line| line.starts_with("| A")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, _, _, tests] = cells[..] else { panic!("not five columns: {line}") };
        rows.insert(number.trim_start_matches('A').parse::<u32>().unwrap());
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{number} has no test");
        for name in named {
            let exists = words.contains(name) || root().join(name).exists();
            assert!(exists, "{number} names {name}, which is neither a test nor a file");
        }
    }
    let catalogue: BTreeSet<u32> = ATTACKS.into_iter().collect();
    assert_eq!(rows, catalogue);
    // A numbered test has a row.
    for word in words {
        let number = word.strip_prefix('a').and_then(|rest| rest.split_once('_'));
        let Some(Ok(number)) = number.map(|(number, _)| number.parse::<u32>()) else { continue };
        assert!(rows.contains(&number), "{word} has no row");
    }
}

/// Settings that a remedy names are written `section.key`; the sections are those of the example.
#[test]
fn every_cause_is_documented_and_names_settings_that_there_are() {
    let hosts = read("docs/hosts.md");
    let (example, configuration) = (read("turnjail.example.toml"), read("docs/configuration.md"));
    for cause in turnjail_jail::causes::table::ALL {
        let row = format!("| `{}` |", cause.code);
        assert!(hosts.contains(&row), "docs/hosts.md has no row for {}", cause.code);
        for (_, remedy) in cause.remedies {
            let words = remedy.split(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c));
            for word in words {
                let Some((section, key)) = word.trim_end_matches('.').split_once('.') else {
                    continue;
                };
                if !["directories", "limits", "jail", "turn", "model"].contains(&section) {
                    continue;
                }
                let known = example.contains(key) || configuration.contains(key);
                assert!(known, "{} names {word}, which is no setting", cause.code);
            }
        }
    }
}
