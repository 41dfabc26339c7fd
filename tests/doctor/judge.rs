//! What a verdict must be, and that a start agrees with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::environment::{Account, Run, finish, program};

/// A port that nobody listens at: a turn that gets as far as its model fails there.
const NOBODY: &str = "http://127.0.0.1:9/";

/// What surrounds the program: another program that starts it, and variables.
#[derive(Debug, Clone, Default)]
pub struct Around {
    command: Vec<OsString>,
    variables: Vec<(&'static str, String)>,
}

impl Around {
    /// A program with arguments, after which the program under test and its own follow.
    pub fn of(program: &Path, arguments: Vec<OsString>) -> Self {
        let command = std::iter::once(program.as_os_str().to_owned()).chain(arguments).collect();
        Self { command, ..Self::default() }
    }

    /// Commands of a shell in a user and a mount namespace of its own, with every capability there; then
    /// the program without them.
    pub fn outer_namespace(setup: &str) -> Self {
        Self::shell("--mount", setup)
    }

    /// The same with options of unshare(1).
    pub fn shell(options: &str, setup: &str) -> Self {
        let script =
            format!("set -e; {setup}\nexec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"");
        let mut words = vec!["--user", "--map-current-user", "--keep-caps"];
        words.extend(options.split_whitespace());
        words.extend(["sh", "-c", script.as_str(), "sh"]);
        Self::of(Path::new("unshare"), words.into_iter().map(OsString::from).collect())
    }

    /// With a variable of the environment.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Runs the program with arguments in these surroundings.
    pub fn run(&self, account: &Account, arguments: &[&str]) -> Run {
        let mut words: Vec<OsString> = self.command.clone();
        words.push(program().as_os_str().to_owned());
        words.extend(arguments.iter().map(OsString::from));
        let first = PathBuf::from(words.remove(0));
        let mut command = account.command_of_user(&first, &[]);
        command.args(words);
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        finish(command)
    }

    fn json(&self, account: &Account, arguments: &[&str]) -> (i32, Value) {
        let run = self.run(account, arguments);
        // The log, and what the surroundings say, stand before an error.
        let text = if run.out.trim().is_empty() { &run.err } else { &run.out };
        let start = text.starts_with('{').then_some(0).or_else(|| Some(text.find("\n{")? + 1));
        let value = serde_json::from_str(&text[start.unwrap_or(0)..]);
        (run.code, value.unwrap_or_else(|error| panic!("{error}: {run:?}")))
    }

    /// Doctor says that no jail can be made here, and a turn stops with the same code, cause and remedy,
    /// which holds `remedy`.
    pub fn must_fail(&self, code: &str, remedy: &str) {
        self.must_fail_as(code, &[], remedy);
    }

    /// The same where the cause names these, too.
    pub fn must_fail_as(&self, code: &str, names: &[&str], remedy: &str) {
        let account = Account::new();
        account.ask(NOBODY, "");
        let (exit, found) = self.json(&account, &["doctor", "--json"]);
        assert_eq!((exit, &found["exit"]), (4, &4.into()), "{found:#}");
        let checks = found["checks"].as_array().unwrap();
        let failed = checks.iter().filter(|check| check["state"] == "failed");
        let failed: Vec<&Value> = failed.filter(|check| check["code"] == code).collect();
        assert!(!failed.is_empty(), "no failed check has the code {code}: {found:#}");
        let (exit, error) = self.json(&account, &["turn", "--json", "hi"]);
        assert_eq!(exit, 4, "{error:#}");
        let problem = &error["error"]["problems"][0];
        assert_eq!(error["error"]["code"], code, "{error:#}");
        assert!(
            failed.iter().any(|check| check["remedy"] == problem["remedy"]),
            "doctor has another remedy: {found:#} {error:#}"
        );
        let cause = problem["cause"].as_str().unwrap();
        assert!(
            failed.iter().any(|check| cause.contains(check["evidence"].as_str().unwrap())),
            "doctor has another cause: {found:#} {error:#}"
        );
        let said = problem["remedy"].as_str().unwrap();
        assert!(said.contains(remedy), "{said}");
        for name in names {
            assert!(cause.contains(name), "{cause}");
        }
        assert_nothing_left(&account);
    }

    /// Doctor says that something is lost and that turns can run; a turn gets as far as its model.
    pub fn must_degrade(&self, code: &str, remedy: &str) {
        let account = Account::new();
        account.ask(NOBODY, "");
        let (exit, found) = self.json(&account, &["doctor", "--json"]);
        assert_eq!(exit, 0, "{found:#}");
        let checks = found["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["code"] == code);
        let check = check.unwrap_or_else(|| panic!("no check has the code {code}: {found:#}"));
        assert_eq!(check["state"], "degraded", "{check:#}");
        assert!(check["remedy"].as_str().unwrap().contains(remedy), "{check:#}");
        assert!(!check["consequence"].as_str().unwrap().is_empty(), "{check:#}");
        assert_eq!(found["turn"]["ok"], true, "{found:#}");
        self.must_reach_the_model(&account);
    }

    /// Doctor says that turns can run here.
    pub fn must_work(&self) {
        let account = Account::new();
        account.ask(NOBODY, "");
        let (exit, found) = self.json(&account, &["doctor", "--json"]);
        assert_eq!((exit, &found["turn"]["ok"]), (0, &true.into()), "{found:#}");
        self.must_reach_the_model(&account);
    }

    fn must_reach_the_model(&self, account: &Account) {
        let (exit, error) = self.json(account, &["turn", "--json", "hi"]);
        assert_eq!(exit, 1, "{error:#}");
        let cause = error["error"]["problems"][0]["cause"].as_str().unwrap_or_default();
        assert!(cause.contains("model"), "{error:#}");
        assert_nothing_left(account);
    }
}

/// No run directory, and nothing in the temporary directory.
pub fn assert_nothing_left(account: &Account) {
    assert_eq!(account.run_directories(), [""; 0], "run directories are left");
    let left = std::fs::read_dir(account.path("tmp")).unwrap().count();
    assert_eq!(left, 0, "something is left in the temporary directory");
}
