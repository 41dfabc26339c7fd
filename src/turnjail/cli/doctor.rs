//! `turnjail doctor`: each building block tried, then a real turn in a real jail.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};
use turnjail_jail::JailOptions;
use turnjail_jail::doctor::inside::Inside;
use turnjail_jail::doctor::{Check, Report, State, places};
use turnjail_runtime::{EventSender, TurnResult};

use super::arguments::Common;
use super::output::{Palette, Style, print_json, visible, write_out};
use super::receipt::{self, as_json, time};
use super::session;
use super::signals::Interrupts;
use crate::config::{LogFormat, Logging};
use crate::demo::{Demo, Place, request};
use crate::error::{CliError, Exit};
use crate::host;

/// What the turn at the end says; the reply shows that model, broker and memory work.
const SAYS: &str = "Please remember that my doctor is turnjail.";

/// What was found out.
struct Findings {
    checks: Vec<Check>,
    /// What a worker in a jail is.
    inside: Option<Inside>,
    /// What is wrong with the configuration, where there is one.
    configuration: Option<CliError>,
    /// The turn at the end; none where a jail cannot be made.
    turn: Option<Result<TurnResult, CliError>>,
}

/// Tries everything and prints a line each.
pub fn run(common: &Common) -> Result<ExitCode, CliError> {
    host::refuse_root("doctor")?;
    let Configured { options, places, problem } = configured(common)?;
    session::log(Logging { level: tracing::Level::ERROR, format: LogFormat::Text });
    let findings = session::in_private_place(async |place, interrupts| {
        let options = options.unwrap_or_else(|| JailOptions::new(place.images()));
        examine(place, interrupts, options, places, problem).await
    })?;
    let exit = findings.exit();
    if common.json {
        print_json(&findings.as_json(exit))?;
    } else {
        write_out(findings.as_text(Palette::of_stdout()).as_bytes())?;
    }
    Ok(exit.map_or(ExitCode::SUCCESS, |exit| ExitCode::from(exit.code())))
}

/// What a configuration says, where there is one.
#[derive(Default)]
struct Configured {
    /// Its policies.
    options: Option<JailOptions>,
    /// Its directories.
    places: Vec<(&'static str, PathBuf)>,
    /// What a start would refuse of the rest.
    problem: Option<CliError>,
}

fn configured(common: &Common) -> Result<Configured, CliError> {
    if common.config.is_none() && !Common::default_file_exists() {
        return Ok(Configured::default());
    }
    let config = common.load()?;
    let settings = &config.settings;
    let directories = &settings.directories;
    let places = vec![
        (places::STORE, directories.images.clone()),
        ("run directories", directories.run.clone()),
        (places::WORKSPACES, directories.workspaces.clone()),
    ];
    let problem = session::check_config(&config).err();
    Ok(Configured { options: Some(settings.jail_options()), places, problem })
}

async fn examine(
    place: &Place,
    interrupts: &mut Interrupts,
    options: JailOptions,
    mut places: Vec<(&'static str, PathBuf)>,
    configuration: Option<CliError>,
) -> Result<Findings, CliError> {
    if places.is_empty() {
        places.push((places::STORE, place.images()));
    }
    let examined = async { Ok(turnjail_jail::doctor::doctor(&options, &places).await) };
    let Report { checks, inside } = interrupts.guard(examined).await?;
    let broken = checks.iter().any(|check| check.state == State::Failed && !check.policy);
    let turn = if broken { None } else { Some(turn(place, interrupts).await) };
    match turn {
        Some(Err(error)) if error.code == "cancelled" => Err(error),
        turn => Ok(Findings { checks, inside, configuration, turn }),
    }
}

/// A turn with whatever this host has: what a policy would refuse is among the checks already.
async fn turn(place: &Place, interrupts: &mut Interrupts) -> Result<TurnResult, CliError> {
    let demo =
        interrupts.guard(Box::pin(Demo::start(place, JailOptions::new(place.images())))).await?;
    let result =
        session::answer(&demo.runtime, request(SAYS), EventSender::discard(), interrupts).await;
    demo.runtime.dispose().await;
    result
}

impl Findings {
    fn exit(&self) -> Option<Exit> {
        let failed = |policy| {
            self.checks.iter().any(|check| check.state == State::Failed && check.policy == policy)
        };
        match &self.turn {
            _ if failed(false) && self.only_the_store_failed() => Some(Exit::Usage),
            _ if failed(false) => Some(Exit::CannotJail),
            None => Some(Exit::CannotJail),
            Some(Err(error)) => Some(error.exit),
            Some(Ok(result)) if !result.reply.ok => Some(Exit::Failed),
            Some(Ok(_)) if failed(true) => Some(Exit::PolicyUnmet),
            Some(Ok(_)) => self.configuration.as_ref().map(|error| error.exit),
        }
    }

    /// A store that cannot be used is a matter of its directory, which a setting names.
    fn only_the_store_failed(&self) -> bool {
        let failed = |check: &&Check| check.state == State::Failed && !check.policy;
        self.checks.iter().filter(failed).all(|check| check.code.starts_with("image-"))
    }

    fn as_json(&self, exit: Option<Exit>) -> Value {
        let turn = self.turn.as_ref().map(|turn| match turn {
            Ok(result) => json!({ "ok": result.reply.ok, "receipt": as_json(&result.receipt) }),
            Err(error) => json!({ "ok": false, "error": error.code, "cause": error.to_string() }),
        });
        json!({
            "ok": exit.is_none(),
            "exit": exit.map_or(0, Exit::code),
            "checks": self.checks,
            "inside": self.inside,
            "configuration": self.configuration.as_ref().map(|error| {
                json!({ "error": error.code, "cause": error.to_string() })
            }),
            "turn": turn,
        })
    }

    fn as_text(&self, palette: Palette) -> String {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        let mut text: String =
            self.checks.iter().map(|check| line(check, width, palette)).collect();
        if let Some(error) = &self.configuration {
            let failed = palette.paint(Style::Bad, &format!("{:8}", "failed"));
            for problem in &error.problems {
                let (cause, remedy) = (visible(&problem.cause), visible(&problem.remedy));
                let _ = writeln!(text, "{failed}  {:width$}  {cause}", "configuration");
                let _ = writeln!(text, "{:indent$}remedy: {remedy}", "", indent = width + 12);
            }
        }
        text.push('\n');
        match &self.turn {
            None => text.push_str("no turn was tried: a jail cannot be made here\n"),
            Some(Err(error)) => {
                text.push_str(&palette.paint(Style::Bad, "a real turn failed"));
                for problem in &error.problems {
                    let (cause, remedy) = (visible(&problem.cause), visible(&problem.remedy));
                    let _ = writeln!(text, ": {cause}\n  remedy: {remedy}");
                }
            }
            Some(Ok(result)) => text.push_str(&self.turn_as_text(result, palette)),
        }
        text
    }

    fn turn_as_text(&self, result: &TurnResult, palette: Palette) -> String {
        let run = &result.receipt.run;
        let start = std::time::Duration::from_micros(run.timing.start_us);
        let (start, whole) = (time(start), time(result.receipt.took));
        let verdict = match self.exit() {
            None => palette.paint(Style::Good, "turns can run here"),
            Some(Exit::PolicyUnmet) => {
                palette.paint(Style::Bad, "turns can run here, but not under the policies set")
            }
            Some(_) => {
                palette.paint(Style::Bad, "turns can run here, but not by this configuration")
            }
        };
        let inside = self.inside.as_ref().map(|inside| seen(inside, palette)).unwrap_or_default();
        format!(
            "a real turn ({}): jail started in {start}, whole turn {whole}\n{}{inside}\n{verdict}\n",
            receipt::ran_by(run),
            receipt::in_force(run, palette),
        )
    }
}

/// What a worker in a jail is, as the kernel says.
fn seen(inside: &Inside, palette: Palette) -> String {
    let list = |all: &[String]| all.join("; ");
    let pairs = |all: &std::collections::BTreeMap<&str, String>| {
        all.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    };
    let limits = inside.limits.iter().map(|(name, value)| format!("{name} {value}"));
    let lines = [
        ("ids", pairs(&inside.ids)),
        ("process", format!("{} (on this host, ..., in the jail)", inside.process)),
        ("capabilities", pairs(&inside.capabilities)),
        ("privileges", format!("no_new_privs {}", inside.no_new_privs)),
        ("seccomp", format!("mode {}, {} filter(s)", inside.seccomp, inside.seccomp_filters)),
        ("namespaces", format!("its own {}", inside.own_namespaces.join(", "))),
        ("shared", inside.shared_namespaces.join(", ")),
        ("mounts", list(&inside.mounts)),
        ("interfaces", list(&inside.interfaces)),
        ("descriptors", inside.descriptors.as_deref().map_or_else(|| "not seen".to_owned(), list)),
        ("limits", limits.collect::<Vec<_>>().join("; ")),
    ];
    let title = palette.paint(Style::Strong, "a worker in a jail, as the kernel shows it");
    let mut text = format!("{title}\n");
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(text, "  {name:12}  {}", visible(&value));
    }
    text
}

/// A building block: its verdict and evidence, then what is lost and what to do.
fn line(check: &Check, width: usize, palette: Palette) -> String {
    let (style, state) = match check.state {
        State::Ok => (Style::Good, "ok"),
        State::Degraded => (Style::Warning, "degraded"),
        State::Failed => (Style::Bad, "failed"),
    };
    let state = palette.paint(style, &format!("{state:8}"));
    let mut text = format!("{state}  {:width$}  {}\n", check.name, visible(&check.evidence));
    let indent = 10 + width + 2;
    if let Some(consequence) = &check.consequence {
        let _ = writeln!(text, "{:indent$}lost: {} [{}]", "", visible(consequence), check.code);
    }
    if let Some(remedy) = &check.remedy {
        let _ = writeln!(text, "{:indent$}remedy: {}", "", visible(remedy));
    }
    text
}
