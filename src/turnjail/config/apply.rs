//! Settings to what the runtime, the broker and the jail are started with.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use turnjail_broker::{
    BrokerSettings, CallbackTarget, CallbackTool, CommandTool, Credential, CredentialHeader,
    McpScope, McpServer, McpTool, McpTransport, OutputLimitField as BrokerOutputLimitField, Tool,
    read_file,
};
use turnjail_docker::DockerOptions;
use turnjail_jail::{Bounds, DEFAULT_BOUNDS, JailOptions, Policy};
use turnjail_protocol::ToolSpec;
use turnjail_runtime::{AuditLog, SandboxOptions, WorkspaceMode};

use super::images::ImageEntry;
use super::mcp::Transport;
use super::model::OutputLimitField;
use super::paths::Directories;
use super::settings::Jail;
use super::tools::{Text, ToolKind};
use super::{Host, HostSettings, SecretSource, Settings, mcp, tools};
use crate::error::{CliError, Exit};

/// The most that the file of a command's secret may hold.
const SECRET_BYTES: usize = 64 * 1024;

impl Settings {
    /// The options of the runtime. Reads the secrets that tools' commands are given.
    pub fn sandbox_options(&self) -> Result<SandboxOptions, CliError> {
        let turn = &self.turn;
        let directories = &self.directories;
        let mode =
            if turn.guild_workspace { WorkspaceMode::Server } else { WorkspaceMode::Channel };
        let mut options = SandboxOptions::new(
            &turn.image,
            &directories.run,
            &directories.workspaces,
            self.broker_settings()?,
        )
        .workspace(mode)
        .time_zone(&turn.time_zone)
        .memory_mb(turn.memory_mb)
        .cpus(turn.cpus)
        .pids(turn.pids)
        .turn_timeout(turn.timeout)
        .max_waiting(turn.max_waiting)
        .budgets(self.budgets)
        .skills(&turn.skills);
        if let Some(prompt) = &turn.prompt {
            options = options.prompt(prompt);
        }
        if let Some(wait) = turn.max_wait {
            options = options.max_wait(wait);
        }
        if let Some(files) = self.files {
            options = options.files(files);
        }
        Ok(options)
    }

    /// The audit log, opened.
    pub fn audit_log(&self) -> Result<Option<Arc<AuditLog>>, CliError> {
        let Some(file) = &self.audit else { return Ok(None) };
        let log = AuditLog::open(file).map_err(|error| {
            CliError::new(
                Exit::Usage,
                "audit",
                format_args!("audit.file {} cannot be opened: {error}", file.display()),
                "name a file in a directory that this user may write",
            )
        })?;
        Ok(Some(Arc::new(log)))
    }

    /// The options of the jail driver.
    pub fn jail_options(&self) -> JailOptions {
        jail_options(&self.directories, self.jail, &self.images)
    }

    /// The same for a command that starts a driver, uses it once and ends: it takes the word of an earlier
    /// one that the walls stand.
    pub fn jail_options_of_a_command(&self) -> JailOptions {
        of_a_command(self.jail_options(), &self.directories)
    }

    /// The options of the Docker driver. The client is found as this process finds it.
    pub fn docker_options(&self) -> DockerOptions {
        let mut options = DockerOptions::new();
        options.program.clone_from(&self.docker.program);
        options.host.clone_from(&self.docker.host);
        if let Some(path) = std::env::var_os("PATH") {
            options.path = path;
        }
        let host = Host::of_this_process();
        options.home = host.home;
        options.runtime_dir = host.runtime_dir;
        options
    }

    fn broker_settings(&self) -> Result<BrokerSettings, CliError> {
        let model = &self.model;
        let mut settings = BrokerSettings::new(&model.name, &model.url, credential(&model.api_key));
        settings.credential_header = header(model.credential_header.as_deref());
        settings.output_limit_field = match model.output_limit_field {
            OutputLimitField::MaxTokens => BrokerOutputLimitField::MaxTokens,
            OutputLimitField::MaxCompletionTokens => BrokerOutputLimitField::MaxCompletionTokens,
        };
        settings.max_output_tokens = model.max_output_tokens;
        settings.extra_fields.clone_from(&model.extra_fields);
        settings.extra_headers.clone_from(&model.extra_headers);
        settings.model_timeout = model.timeout;
        settings.retries = model.retries;
        settings.max_calls = self.turn.max_calls;
        settings.allow_http = model.allow_http;
        settings.ca_file.clone_from(&model.ca_file);
        settings.proxy.clone_from(&model.proxy);
        settings.tools = self.tools.iter().map(host_tool).collect::<Result<_, _>>()?;
        settings.mcp = self.mcp.iter().map(mcp_server).collect::<Result<_, _>>()?;
        Ok(settings)
    }
}

impl HostSettings {
    /// The options of the jail driver, for a command that uses it once.
    pub fn jail_options_of_a_command(&self) -> JailOptions {
        let options = jail_options(&self.directories, self.jail, &self.images);
        of_a_command(options, &self.directories)
    }
}

fn jail_options(directories: &Directories, jail: Jail, images: &[ImageEntry]) -> JailOptions {
    let policy = |required| if required { Policy::Required } else { Policy::BestEffort };
    let mut options = JailOptions::new(directories.images.clone());
    options.limits = policy(jail.limits_required);
    options.landlock = policy(jail.landlock_required);
    options.groups = policy(jail.groups_refused);
    options.pool = jail.pool;
    options.bounds = bounds(jail);
    for image in images {
        options.images.set(&image.reference, image.settings);
    }
    options
}

/// A workspace without a bound of bytes has none of entries either.
fn bounds(jail: Jail) -> Bounds {
    const MIB: u64 = 1024 * 1024;
    Bounds {
        bytes: u64::from(jail.workspace_max_mb) * MIB,
        entries: if jail.workspace_max_mb == 0 { 0 } else { DEFAULT_BOUNDS.entries },
        reserve: u64::from(jail.disk_reserve_mb) * MIB,
    }
}

fn of_a_command(mut options: JailOptions, directories: &Directories) -> JailOptions {
    options.passes = Some(directories.run.join("canary"));
    // One turn has nothing to be prepared for.
    options.pool = 0;
    options
}

/// A source of a secret as the broker knows it.
pub fn credential(source: &SecretSource) -> Credential {
    match source {
        SecretSource::None => Credential::None,
        SecretSource::Environment(name) => Credential::Env(name.clone()),
        SecretSource::File(path) => Credential::File(path.clone()),
        SecretSource::Command(argv) => Credential::Command(argv.clone()),
    }
}

fn header(name: Option<&str>) -> CredentialHeader {
    name.map_or(CredentialHeader::Bearer, |name| CredentialHeader::Named(name.to_owned()))
}

fn host_tool(tool: &tools::Tool) -> Result<Tool, CliError> {
    let spec = ToolSpec::new(&tool.name, &tool.description, tool.parameters.clone());
    let callback = |target, api_key| {
        let mut callback = CallbackTool::new(spec.clone(), target);
        callback.credential = credential(api_key);
        callback.validate = tool.validate;
        Tool::from(callback)
    };
    Ok(match &tool.kind {
        ToolKind::Command { argv, environment, timeout } => {
            let mut command = CommandTool::new(spec, argv.clone());
            command.env = variables(&format!("tool {}", tool.name), environment)?;
            command.timeout = *timeout;
            command.validate = tool.validate;
            command.into()
        }
        ToolKind::Url { url, api_key } => callback(CallbackTarget::Url(url.clone()), api_key),
        ToolKind::Socket { socket, request, api_key } => {
            let target = CallbackTarget::Unix { socket: socket.clone(), path: request.clone() };
            callback(target, api_key)
        }
    })
}

/// The environment of a command.
fn variables(
    whose: &str,
    environment: &[(String, Text)],
) -> Result<BTreeMap<String, String>, CliError> {
    let values =
        environment.iter().map(|(name, text)| Ok((name.clone(), value(whose, name, text)?)));
    values.collect()
}

/// The text of a command's variable. A missing secret is the operator's mistake and stops the start.
fn value(whose: &str, name: &str, text: &Text) -> Result<String, CliError> {
    let missing = |what: String, remedy: &str| {
        let cause = format!("{whose}: the variable {name} has no value: {what}");
        CliError::new(Exit::Usage, "config", cause, remedy)
    };
    match text {
        Text::Plain(text) => Ok(text.clone()),
        Text::Secret(SecretSource::Environment(source)) => std::env::var(source).map_err(|_| {
            missing(format!("the environment variable {source} is not set"), "set the variable")
        }),
        Text::Secret(SecretSource::File(path)) => {
            let unusable = |error: &dyn Display| {
                missing(format!("{} cannot be read: {error}", path.display()), "make it readable")
            };
            let bytes = read_file(path, SECRET_BYTES).map_err(|error| unusable(&error))?;
            let text = std::str::from_utf8(&bytes).map_err(|_| unusable(&"it is not UTF-8"))?;
            Ok(text.trim().to_owned())
        }
        Text::Secret(SecretSource::None | SecretSource::Command(_)) => {
            Err(missing("its source is of no use here".to_owned(), "use env or file"))
        }
    }
}

fn mcp_server(server: &mcp::McpServer) -> Result<McpServer, CliError> {
    let tools = server.tools.iter().map(|tool| {
        let mut declared = match &tool.name {
            Some(name) => McpTool::aliased(name, &tool.remote),
            None => McpTool::named(&tool.remote),
        };
        if let Some((description, parameters)) = &tool.declared {
            declared = declared.declare(description, parameters.clone());
        }
        declared.validate = tool.validate;
        declared
    });
    let transport = match &server.transport {
        Transport::Http(url) => McpTransport::StreamableHttp { url: url.clone() },
        Transport::Json(url) => McpTransport::Json { url: url.clone() },
        Transport::Command { argv, environment } => {
            let env = variables(&format!("MCP server {}", server.name), environment)?;
            McpTransport::Stdio { argv: argv.clone(), env }
        }
    };
    let mut settings = McpServer::new(&server.name, transport, tools.collect());
    settings.scope = if server.shared { McpScope::Host } else { McpScope::Channel };
    settings.credential = credential(&server.api_key);
    settings.credential_header = header(server.credential_header.as_deref());
    Ok(settings)
}
