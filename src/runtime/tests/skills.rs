//! Skills as an operator lays them out and as a model reads them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use turnjail_protocol::Budgets;
use turnjail_runtime::{SandboxRuntime, SetupError};

use crate::common::{Place, Scripted, paused, request, start, tests};

tests![
    the_prompt_ends_with_an_index_and_the_tool_is_declared,
    every_fault_of_a_skill_stops_start_up_with_its_place,
    other_things_beside_skills_are_passed_over,
    two_skills_of_one_name_stop_start_up,
    a_host_tool_named_read_skill_stops_start_up,
    an_index_over_the_prompt_budget_stops_start_up_with_both_sizes,
    links_within_a_skill_are_read_and_others_refused,
];

const GOOD: &str =
    "---\nname: NAME\ndescription: |\n  Fills forms.\n  Reads PDF.\nlicense: MIT\n---\n# How\n";

fn write(path: &Path, text: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A directory of skills with one good skill of this name.
fn skills(place: &Place, name: &str) -> PathBuf {
    let directory = place.path().join("skills");
    write(&directory.join(name).join("SKILL.md"), GOOD.replace("NAME", name));
    directory
}

fn start_error(place: &Place, directory: &Path) -> SetupError {
    let mut error = None;
    paused(async {
        let options = place.options().skills([directory]);
        error = SandboxRuntime::new(options, Scripted::new()).await.err();
    });
    error.expect("refused")
}

fn the_prompt_ends_with_an_index_and_the_tool_is_declared() {
    let (place, driver) = (Place::new(), Scripted::new());
    let directory = skills(&place, "pdf-forms");
    skills(&place, "a1");
    paused(async {
        let options = place.options().prompt("Be kind.").skills([directory]);
        let runtime = start(options, &driver).await;
        runtime.verify_image().await.unwrap();
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    let turn: Value = serde_json::from_str(&driver.runs()[0].json).unwrap();
    let prompt = turn["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("Be kind.\n\nSkills"), "{prompt}");
    assert!(
        prompt.ends_with("\n- a1: Fills forms. Reads PDF.\n- pdf-forms: Fills forms. Reads PDF."),
        "{prompt}"
    );
    assert_eq!(turn["tools"][0]["name"], "read_skill");
}

fn every_fault_of_a_skill_stops_start_up_with_its_place() {
    let place = Place::new();
    let error = start_error(&place, &place.path().join("absent"));
    assert!(error.to_string().starts_with("skills: ") && error.to_string().contains("absent"));
    for (name, files, says) in [
        (
            "one",
            vec![("SKILL.md", b"# no frontmatter".to_vec())],
            "SKILL.md\" line 1: must begin with",
        ),
        (
            "two",
            vec![("SKILL.md", b"---\nname: two\ndescription: a: b\n---\n".to_vec())],
            "SKILL.md\" line 3: the frontmatter is no valid YAML",
        ),
        (
            "three",
            vec![("SKILL.md", b"---\ndescription: a\nname: four\n---\n".to_vec())],
            "SKILL.md\" line 3: name must equal the folder's, \"three\"",
        ),
        (
            "Four",
            vec![("SKILL.md", b"---\nname: Four\ndescription: a\n---\n".to_vec())],
            "line 2: name must be",
        ),
        ("five", vec![("SKILL.md", vec![0xff])], "must be text of at most"),
        ("six", vec![("SKILL.md", vec![b'-'; 300_000])], "must be text of at most 262144 bytes"),
    ] {
        let directory = place.path().join(format!("of-{name}"));
        for (file, content) in files {
            write(&directory.join(name).join(file), content);
        }
        let error = start_error(&place, &directory);
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains(&format!("of-{name}")), "{error}");
        assert_eq!(error.code(), "skill");
        assert!(error.remedy().is_some());
    }
    let many = place.path().join("many");
    write(&many.join("big/SKILL.md"), GOOD.replace("NAME", "big"));
    for index in 0..512 {
        write(&many.join(format!("big/{index}")), "x");
    }
    assert!(start_error(&place, &many).to_string().contains("holds over 512 files"));
    let large = place.path().join("large");
    write(&large.join("big/SKILL.md"), GOOD.replace("NAME", "big"));
    for index in 0..33 {
        write(&large.join(format!("big/{index}")), "x".repeat(262_144));
    }
    assert!(start_error(&place, &large).to_string().contains("holds over 8388608 bytes"));
}

fn other_things_beside_skills_are_passed_over() {
    let (place, driver) = (Place::new(), Scripted::new());
    let directory = skills(&place, "pdf");
    write(&directory.join("README.md"), "about these skills");
    write(&directory.join("notes/todo.txt"), "no skill");
    write(&directory.join(".git/SKILL.md"), "hidden");
    write(&directory.join("pdf/.git/config"), "hidden");
    paused(async {
        start(place.options().skills([directory]), &driver).await;
    });
}

fn two_skills_of_one_name_stop_start_up() {
    let place = Place::new();
    let first = skills(&place, "pdf");
    let second = place.path().join("more");
    write(&second.join("pdf/SKILL.md"), GOOD.replace("NAME", "pdf"));
    paused(async {
        let options = place.options().skills([&first, &second]);
        let error = SandboxRuntime::new(options, Scripted::new()).await.unwrap_err().to_string();
        assert!(error.contains("more/pdf/SKILL.md"), "{error}");
        assert!(
            error.contains("a skill of this name is in") && error.contains("skills/pdf"),
            "{error}"
        );
    });
}

fn a_host_tool_named_read_skill_stops_start_up() {
    let place = Place::new();
    let directory = skills(&place, "pdf");
    paused(async {
        let mut broker = crate::common::broker();
        let command = turnjail_broker::CommandTool::new(
            turnjail_protocol::ToolSpec::new("read_skill", "", serde_json::Map::new()),
            vec!["/bin/true".to_owned()],
        );
        broker.tools.push(command.into());
        let options = turnjail_runtime::SandboxOptions::new(
            "worker",
            place.run_root(),
            place.workspace_root(),
            broker,
        );
        let error =
            SandboxRuntime::new(options.skills([directory]), Scripted::new()).await.unwrap_err();
        assert!(error.to_string().starts_with("tools must not name one read_skill"), "{error}");
        assert_eq!(error.remedy(), Some("rename the tool"));
    });
}

fn an_index_over_the_prompt_budget_stops_start_up_with_both_sizes() {
    let place = Place::new();
    let directory = place.path().join("skills");
    for index in 0..9 {
        let description = "x".repeat(1_000);
        let text = format!("---\nname: s{index}\ndescription: {description}\n---\n");
        write(&directory.join(format!("s{index}/SKILL.md")), text);
    }
    let error = start_error(&place, &directory);
    assert!(
        error.to_string().starts_with("prompt has 132 bytes and the index of skills 9"),
        "{error}"
    );
    assert!(error.to_string().ends_with("over budgets.prompt_bytes, which is 8192"), "{error}");
    paused(async {
        let budgets = Budgets { prompt_bytes: Some(16_384), ..Budgets::default() };
        start(place.options().skills([&directory]).budgets(budgets), &Scripted::new()).await;
    });
}

fn links_within_a_skill_are_read_and_others_refused() {
    let (place, driver) = (Place::new(), Scripted::new());
    let directory = skills(&place, "pdf");
    let skill = directory.join("pdf");
    write(&skill.join("docs/real.md"), "text");
    symlink("docs/real.md", skill.join("alias.md")).unwrap();
    symlink("docs", skill.join("folder")).unwrap();
    symlink("..", skill.join("docs/loop-outside")).unwrap();
    // `..` of docs is the skill itself: within it, and not walked again.
    paused(async {
        start(place.options().skills([&directory]), &driver).await;
    });
    for target in ["/etc/hostname", "../../elsewhere", "../other"] {
        write(&place.path().join("elsewhere"), "secret");
        write(&directory.join("other/file"), "secret");
        let link = skill.join("leaving");
        symlink(target, &link).unwrap();
        let error = start_error(&place, &directory);
        assert!(error.to_string().contains("leaving"), "{error}");
        assert!(error.to_string().contains("leaves the skill's folder"), "{error}");
        std::fs::remove_file(link).unwrap();
    }
    // The skill's own folder may be a link: that is how skills are shared.
    let shared = place.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    symlink(&skill, shared.join("pdf")).unwrap();
    paused(async {
        start(place.options().skills([&shared]), &driver).await;
    });
    nix::unistd::mkfifo(&skill.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = start_error(&place, &directory);
    assert!(error.to_string().contains("neither a file nor a folder"), "{error}");
}
