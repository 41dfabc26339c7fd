//! The YAML at the head of a SKILL.md.

use serde::Deserialize;
use serde_saphyr::Spanned;
use turnjail_protocol::measure::utf16_len;

/// The longest description, in UTF-16 code units.
const DESCRIPTION_UNITS: usize = 1_024;
/// The longest name, in characters.
const NAME_CHARS: usize = 64;
/// What stands on the lines around the YAML.
const FENCE: &str = "---";

/// What is wrong with a frontmatter, and on which line of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub line: u64,
    pub text: String,
}

/// The fields that count. The format has others, and clients add theirs: they are taken and not used.
#[derive(Debug, Deserialize)]
struct Fields {
    name: Spanned<String>,
    description: Spanned<String>,
}

/// Reads the description from the text of a skill's file, whose frontmatter must name `folder`.
pub(super) fn description(text: &str, folder: &str) -> Result<String, Problem> {
    let yaml = yaml(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let fields: Fields = serde_saphyr::from_str(&yaml).map_err(|error| yaml_problem(&error))?;
    let at =
        |field: &Spanned<String>, text: String| Problem { line: field.referenced.line(), text };
    let name = &fields.name;
    if !is_skill_name(&name.value) {
        return Err(at(
            name,
            format!(
                "name must be 1 to {NAME_CHARS} of a-z and 0-9 with single hyphens between, but is {:?}",
                name.value
            ),
        ));
    }
    if name.value != folder {
        let text = format!("name must equal the folder's, {folder:?}, but is {:?}", name.value);
        return Err(at(name, text));
    }
    let description = fields.description.value.trim();
    let units = utf16_len(description);
    if !(1..=DESCRIPTION_UNITS).contains(&units) {
        return Err(at(
            &fields.description,
            format!("description must have 1 to {DESCRIPTION_UNITS} characters, but has {units}"),
        ));
    }
    Ok(description.to_owned())
}

/// Whether a skill may have this name: `[a-z0-9]+(-[a-z0-9]+)*`, at most 64 characters.
pub(super) fn is_skill_name(name: &str) -> bool {
    name.len() <= NAME_CHARS
        && name.split('-').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        })
}

/// The YAML with an empty line in place of the opening fence, so that its lines are the file's.
fn yaml(text: &str) -> Result<String, Problem> {
    let mut lines = text.lines();
    if lines.next().map(str::trim_end) != Some(FENCE) {
        let text = format!("must begin with a line {FENCE} and a frontmatter");
        return Err(Problem { line: 1, text });
    }
    let mut yaml = String::from("\n");
    for line in lines {
        if line.trim_end() == FENCE {
            return Ok(yaml);
        }
        yaml.push_str(line);
        yaml.push('\n');
    }
    let text = format!("the frontmatter must end with a line {FENCE}");
    Err(Problem { line: 1, text })
}

/// The parser's sentence without its picture of the place, and without the place, which is told apart.
fn yaml_problem(error: &serde_saphyr::Error) -> Problem {
    let text = error.without_snippet().to_string();
    let text: Vec<&str> =
        text.split(" at line ").next().unwrap_or_default().split_whitespace().collect();
    Problem {
        line: error.location().map_or(1, |location| location.line()),
        text: format!("the frontmatter is no valid YAML: {}", text.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    fn problem(text: &str) -> (u64, String) {
        let problem = description(text, "pdf").unwrap_err();
        assert!(!problem.text.contains('\n'), "{}", problem.text);
        (problem.line, problem.text)
    }

    #[test]
    fn every_field_of_the_format_is_taken() {
        let text = "---\nname: pdf\ndescription: >-\n  Reads\n  PDF files.\nlicense: Proprietary\ncompatibility: Needs python3\nmetadata:\n  author: example\n  version: \"1.0\"\nallowed-tools: Bash(git:*) Read\n---\n# PDF\n";
        assert_eq!(description(text, "pdf"), Ok("Reads PDF files.".to_owned()));
    }

    #[test]
    fn descriptions_come_in_every_style_of_yaml() {
        for (yaml, expected) in [
            ("Tables, forms (and more); no trouble.", "Tables, forms (and more); no trouble."),
            ("\"Use it for 'letters': any .docx.\"", "Use it for 'letters': any .docx."),
            ("'It''s: fine'", "It's: fine"),
            ("|\n  one\n  two\n", "one\ntwo"),
            (">\n  Use when: (1) asked,\n  (2) needed.\n", "Use when: (1) asked, (2) needed."),
            ("系统性地介绍 GPU/硬件", "系统性地介绍 GPU/硬件"),
            ("plain\n  and folded", "plain and folded"),
        ] {
            let text = format!(
                "---\nname: pdf\ndescription: {yaml}\nargument-hint: [path]\n---\n# A\n---\n"
            );
            assert_eq!(description(&text, "pdf").as_deref(), Ok(expected), "{yaml}");
        }
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_do_not_matter() {
        let text = "\u{feff}---\r\nname: pdf\r\ndescription: \"a: b\"\r\n--- \r\nbody";
        assert_eq!(description(text, "pdf"), Ok("a: b".to_owned()));
    }

    #[test]
    fn problems_name_the_line_of_the_file() {
        for (text, line, says) in [
            ("", 1, "must begin with a line ---"),
            ("# PDF\n", 1, "must begin with a line ---"),
            ("---\nname: pdf\n", 1, "must end with a line ---"),
            (
                "---\n\nname: word\ndescription: a\n---\n",
                3,
                "name must equal the folder's, \"pdf\"",
            ),
            ("---\ndescription: a\nname: Pdf\n---\n", 3, "name must be 1 to 64"),
            (
                "---\nname: pdf\n\ndescription: ''\n---\n",
                4,
                "must have 1 to 1024 characters, but has 0",
            ),
            ("---\nname: pdf\ndescription: a: b: c\n---\n", 3, "no valid YAML"),
            ("---\nname: pdf\nname: pdf\ndescription: a\n---\n", 3, "no valid YAML"),
            ("---\nname: [pdf]\ndescription: a\n---\n", 2, "no valid YAML"),
            ("---\nname: pdf\n---\n", 2, "description"),
            ("---\n- name\n---\n", 2, "no valid YAML"),
            ("---\n---\n", 2, "no valid YAML"),
        ] {
            let (at, why) = problem(text);
            assert!(why.contains(says), "{text:?}: {why}");
            assert_eq!(at, line, "{text:?}: {why}");
        }
    }

    #[test]
    fn descriptions_are_counted_in_utf16_units() {
        let text = |characters: usize| {
            format!("---\nname: pdf\ndescription: {}\n---\n", "😀".repeat(characters))
        };
        assert!(description(&text(512), "pdf").is_ok());
        assert!(problem(&text(513)).1.contains("but has 1026"));
    }

    #[test]
    fn names_have_single_inner_hyphens() {
        for name in ["a", "0", "a-b", "mcp-builder-2", &"a".repeat(64)] {
            assert!(is_skill_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "a--b", "A", "a_b", "a b", "é", &"a".repeat(65)] {
            assert!(!is_skill_name(name), "{name}");
        }
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text =
            String::from("---\nname: pdf\ndescription: a\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for level in 1..30 {
            let before = format!("*a{}", level - 1);
            let _ = writeln!(text, "a{level}: &a{level} [{}]", vec![before; 9].join(","));
        }
        text.push_str("---\n");
        // Refused or ignored, but not expanded.
        let _ = description(&text, "pdf");
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(
            lines in proptest::collection::vec(
                proptest::sample::select(vec![
                    "---", "name: pdf", "description: a", "- x", "  y: z", "a: &b [1]", "c: *b",
                    "<<: *b", "? k", ": v", "|", "\"", "'", "{", "[", "!!binary x", "%YAML 1.1", "\t", "",
                    "...", "# c", "\u{0}", "\u{feff}", "é: 漢",
                ]),
                0..24,
            ),
            noise in ".{0,40}",
        ) {
            let text = format!("---\n{}\n{noise}\n---\n", lines.join("\n"));
            if let Err(problem) = description(&text, "pdf") {
                proptest::prop_assert!(problem.line >= 1 && !problem.text.contains('\n'));
            }
        }
    }
}
