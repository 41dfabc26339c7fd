//! Options as Docker's client reads them: long and short, values apart or after `=`, switches with an
//! optional `=false`.

use super::failure::Failure;

/// An option that a command knows.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Its long name.
    pub name: &'static str,
    /// Its letter; a blank is none.
    pub short: char,
    /// Whether it is a switch, which takes a value after `=` only.
    pub switch: bool,
}

impl Flag {
    /// An option with a value.
    pub const fn value(name: &'static str) -> Self {
        Self { name, short: ' ', switch: false }
    }

    /// A switch.
    pub const fn switch(name: &'static str) -> Self {
        Self { name, short: ' ', switch: true }
    }

    /// With a letter.
    pub const fn short(self, short: char) -> Self {
        Self { short, ..self }
    }
}

/// What was typed: options with their values in order, and the rest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// The option's long name and its value; `true` or `false` for a switch.
    pub flags: Vec<(&'static str, String)>,
    /// What is no option.
    pub rest: Vec<String>,
}

impl Typed {
    /// Whether a switch is on; the last one counts.
    pub fn on(&self, name: &str) -> bool {
        self.last(name) == Some("true")
    }

    /// The last value of an option.
    pub fn last(&self, name: &str) -> Option<&str> {
        self.flags.iter().rfind(|(flag, _)| *flag == name).map(|(_, value)| value.as_str())
    }

    /// Every value of an option.
    pub fn all<'t>(&'t self, name: &'t str) -> impl Iterator<Item = &'t str> {
        self.flags.iter().filter(move |(flag, _)| *flag == name).map(|(_, value)| value.as_str())
    }
}

/// Where the options of a command end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// At the first word that is no option: what follows is a container's.
    FirstWord,
    /// Nowhere: words and options mix.
    End,
}

/// Reads the arguments of a command. An option that is not `known` is an error that says so.
pub fn parse(known: &[Flag], arguments: &[String], until: Until) -> Result<Typed, Failure> {
    let mut typed = Typed::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            typed.rest.extend(words.cloned());
            break;
        }
        if let Some(long) = word.strip_prefix("--") {
            read_long(known, long, &mut words, &mut typed)?;
        } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
            read_short(known, letters, &mut words, &mut typed)?;
        } else {
            typed.rest.push(word.clone());
            if until == Until::FirstWord {
                typed.rest.extend(words.cloned());
                break;
            }
        }
    }
    Ok(typed)
}

fn read_long<'w>(
    known: &[Flag],
    long: &str,
    words: &mut impl Iterator<Item = &'w String>,
    typed: &mut Typed,
) -> Result<(), Failure> {
    let (name, value) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (long, None),
    };
    let flag = known.iter().find(|flag| flag.name == name);
    let flag = flag.ok_or_else(|| unknown(known, format!("unknown flag: --{name}")))?;
    let value = match (flag.switch, value) {
        (true, None) => "true".to_owned(),
        (true, Some(value)) => switch(flag.name, &value)?,
        (false, Some(value)) => value,
        (false, None) => words
            .next()
            .cloned()
            .ok_or_else(|| Failure::engine(format!("flag needs an argument: --{name}")))?,
    };
    typed.flags.push((flag.name, value));
    Ok(())
}

fn read_short<'w>(
    known: &[Flag],
    letters: &str,
    words: &mut impl Iterator<Item = &'w String>,
    typed: &mut Typed,
) -> Result<(), Failure> {
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let flag = known.iter().find(|flag| flag.short == letter && letter != ' ');
        let flag = flag.ok_or_else(|| {
            unknown(known, format!("unknown shorthand flag: {letter:?} in -{letters}"))
        })?;
        let tail = rest.as_str();
        let given = tail.strip_prefix('=').or((!tail.is_empty()).then_some(tail));
        if flag.switch {
            // A value can only follow at once: -i=false.
            if let Some(value) = tail.strip_prefix('=') {
                typed.flags.push((flag.name, switch(flag.name, value)?));
                return Ok(());
            }
            typed.flags.push((flag.name, "true".to_owned()));
            continue;
        }
        let value =
            given.map(str::to_owned).or_else(|| words.next().cloned()).ok_or_else(|| {
                Failure::engine(format!("flag needs an argument: {letter:?} in -{letters}"))
            })?;
        typed.flags.push((flag.name, value));
        return Ok(());
    }
    Ok(())
}

/// The words that Docker's client takes for a truth.
fn switch(name: &str, value: &str) -> Result<String, Failure> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok("true".to_owned()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok("false".to_owned()),
        _ => Err(Failure::engine(format!(
            "invalid argument {value:?} for \"--{name}\" flag: it is a switch, true or false"
        ))),
    }
}

fn unknown(known: &[Flag], what: String) -> Failure {
    let names: Vec<_> = known.iter().map(|flag| format!("--{}", flag.name)).collect();
    Failure::engine(format!("{what}\nturnjail docker knows {} here", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KNOWN: &[Flag] = &[
        Flag::switch("rm"),
        Flag::switch("interactive").short('i'),
        Flag::value("memory").short('m'),
        Flag::value("name"),
    ];

    fn read(line: &str, until: Until) -> Result<Typed, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(KNOWN, &words, until)
    }

    #[test]
    fn options_are_read_as_dockers_client_reads_them() {
        for (line, flags, rest) in [
            ("--rm x", vec![("rm", "true")], vec!["x"]),
            ("--rm=false --name a x", vec![("rm", "false"), ("name", "a")], vec!["x"]),
            ("--name=a=b x", vec![("name", "a=b")], vec!["x"]),
            ("-i -m 5m x", vec![("interactive", "true"), ("memory", "5m")], vec!["x"]),
            ("-im5m x", vec![("interactive", "true"), ("memory", "5m")], vec!["x"]),
            ("-i=0 -m=5m x", vec![("interactive", "false"), ("memory", "5m")], vec!["x"]),
            ("--name -- x", vec![("name", "--")], vec!["x"]),
            ("x --rm -i", vec![], vec!["x", "--rm", "-i"]),
            ("-- --rm", vec![], vec!["--rm"]),
            ("- x", vec![], vec!["-", "x"]),
        ] {
            let typed = read(line, Until::FirstWord).expect(line);
            let found: Vec<_> =
                typed.flags.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(
                (found, typed.rest.iter().map(String::as_str).collect()),
                (flags, rest),
                "{line}"
            );
        }
        assert!(read("x --rm", Until::End).unwrap().on("rm"));
        assert!(!read("--rm --rm=f", Until::End).unwrap().on("rm"), "the last counts");
    }

    #[test]
    fn what_is_not_known_is_an_error_that_says_so() {
        for (line, says) in [
            ("--privileged x", "unknown flag: --privileged"),
            ("--privileged=false x", "unknown flag: --privileged"),
            ("-v /:/host x", "unknown shorthand flag: 'v' in -v"),
            ("-iv x", "unknown shorthand flag: 'v' in -iv"),
            ("--name", "flag needs an argument: --name"),
            ("-m", "flag needs an argument: 'm' in -m"),
            ("--rm=maybe x", "invalid argument \"maybe\" for \"--rm\""),
            ("--=x", "unknown flag: --"),
        ] {
            let failure = format!("{:?}", read(line, Until::FirstWord).unwrap_err());
            assert!(
                failure.contains(&says.replace('"', "\\\"")) || failure.contains(says),
                "{failure}"
            );
            assert!(failure.contains("125"), "{failure}");
        }
    }

    proptest! {
        /// Whatever is typed: an answer or an error, and no word is lost or made up.
        #[test]
        fn any_arguments_are_read_or_refused(
            words in proptest::collection::vec(
                prop_oneof!["[-a-z=]{0,8}", "--(rm|interactive|memory|name)(=.{0,4})?", "-[im]{1,3}.{0,3}", ".{0,6}"],
                0..12,
            ),
        ) {
            for until in [Until::FirstWord, Until::End] {
                if let Ok(typed) = parse(KNOWN, &words, until) {
                    prop_assert!(typed.flags.iter().all(|(name, _)| KNOWN.iter().any(|flag| flag.name == *name)));
                    prop_assert!(typed.rest.iter().all(|word| words.contains(word)));
                    let last = typed.rest.last();
                    if until == Until::FirstWord && last.is_some() {
                        prop_assert_eq!(last, words.last());
                    }
                }
            }
        }
    }
}
