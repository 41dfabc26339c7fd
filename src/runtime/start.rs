//! Options to a running host: the list of what happens before the first turn.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use turnjail_broker::Broker;
use turnjail_driver::{ContainerDriver, ContainerSpec, Limits};

use crate::SetupError;
use crate::check;
use crate::options::{DEFAULT_PROMPT, SandboxOptions, WorkspaceMode};
use crate::preflight;
use crate::roots::{self, Roots};
use crate::runtime::Host;
use crate::settings::{Ids, Settings};
use crate::skills::{self, Skills};

impl SandboxOptions {
    /// Checks everything that can be checked without making, asking or starting anything, as
    /// [`SandboxRuntime::new`](crate::SandboxRuntime::new) does first. Skills are read.
    pub fn check(&self) -> Result<(), SetupError> {
        check::check(self)?;
        roots::check_socket_path(&self.run_root)?;
        let skills = Skills::load(&self.skills)?;
        prompt(self, &skills)?;
        with_skill_tool(self.clone(), &skills)?.broker.check()?;
        Ok(())
    }
}

/// Checks everything, then takes hold of the roots and starts the broker.
pub(crate) async fn start(
    options: SandboxOptions,
    driver: Arc<dyn ContainerDriver>,
) -> Result<Host, SetupError> {
    let ids = Ids::of_process()?;
    check::check(&options)?;
    mention_descriptors();
    let skills = Skills::load(&options.skills)?;
    let prompt = prompt(&options, &skills)?;
    let options = with_skill_tool(options, &skills)?;
    roots::check_socket_path(&options.run_root)?;
    let (roots, leftovers) = Roots::prepare(&options.run_root, &options.workspace_root).await?;
    check_specs(&options, &roots, ids)?;
    let broker = Broker::start(options.broker.clone()).await?;
    let settings = settings(&options, &broker, prompt, ids);
    preflight::check(&settings)?;
    if leftovers.alone {
        driver.clear_leftovers(&roots.run.path).await?;
    }
    Ok(Host {
        settings,
        driver,
        broker,
        roots,
        audit: options.audit,
        admission: Arc::default(),
        queues: Arc::default(),
        turns: TaskTracker::new(),
        tokio: Handle::current(),
    })
}

/// Each running turn takes some descriptors. Raising the limit is for the program, since other parts of
/// it may rely on the low one; a library only says so.
fn mention_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        tracing::warn!(
            soft,
            hard,
            "open files are limited below what this process may have; raise the soft limit to run many turns at once"
        );
    }
}

/// The prompt with the index of skills. Over its budget it stops start-up where the operator set one or
/// uses skills; otherwise the worker cuts it.
fn prompt(options: &SandboxOptions, skills: &Skills) -> Result<String, SetupError> {
    let own = options.prompt.as_deref().unwrap_or(DEFAULT_PROMPT);
    let index = skills.index();
    let whole = index.as_ref().map_or_else(|| own.to_owned(), |index| format!("{own}\n\n{index}"));
    let counts = options.budgets.prompt_bytes.is_some() || index.is_some();
    if counts {
        preflight::check_prompt(&whole, own, index.as_deref(), options.budgets.prompt())?;
    }
    Ok(whole)
}

/// Adds the tool that reads skills to the host tools.
fn with_skill_tool(
    mut options: SandboxOptions,
    skills: &Skills,
) -> Result<SandboxOptions, SetupError> {
    if skills.is_empty() {
        return Ok(options);
    }
    if options.broker.tools.iter().any(|tool| tool.spec().name == skills::READ_SKILL) {
        return Err(SetupError::Option {
            option: "tools",
            problem: format!(
                "must not name one {} (the model sees host_{0}), which skills reserves",
                skills::READ_SKILL
            ),
            remedy: Some("rename the tool".to_owned()),
        });
    }
    options.broker.tools.push(skills.tool());
    Ok(options)
}

/// Proves before the first turn that the directories of every kind of turn make a valid run.
fn check_specs(options: &SandboxOptions, roots: &Roots, ids: Ids) -> Result<(), SetupError> {
    let spec = |workspace: &str, channel: Option<&str>| ContainerSpec {
        name: "sandbox-preflight".to_owned(),
        image: options.image.clone(),
        run_dir: roots.run.path.join("turn-x"),
        workspace_dir: roots.workspaces.path.join(workspace),
        channel_dir: channel.map(|name| roots.workspaces.path.join(name)),
        uid: ids.uid,
        gid: ids.gid,
        limits: limits(options),
    };
    let refused = |error| SetupError::Driver(turnjail_driver::DriverError::Spec(error));
    spec("channel-x", None).check().map_err(refused)?;
    if options.workspace == WorkspaceMode::Server {
        spec("guild-x", Some("state-x")).check().map_err(refused)?;
    }
    Ok(())
}

fn limits(options: &SandboxOptions) -> Limits {
    Limits {
        memory_mb: options.memory_mb,
        cpus: options.cpus,
        pids: options.pids,
        time_ms: millis(options.turn_timeout),
    }
}

fn settings(options: &SandboxOptions, broker: &Broker, prompt: String, ids: Ids) -> Settings {
    Settings {
        image: options.image.clone(),
        mode: options.workspace,
        model: options.broker.model.clone(),
        prompt,
        time_zone: options.time_zone.clone(),
        tools: broker.tool_specs(),
        mcp: broker.mcp_specs(),
        budgets: check::given(options.budgets),
        files: options.files,
        limits: limits(options),
        turn_timeout: options.turn_timeout,
        max_waiting: options.max_waiting,
        max_wait: options.max_wait.unwrap_or(options.turn_timeout),
        ids,
        protocol_2: check::protocol_2_options(options),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
