//! The resolved stage: every setting with its type, defaults filled in.

use std::path::PathBuf;

use turnjail_images::ImageLimits;
use turnjail_protocol::{Budgets, Files};

use super::docker::Docker;
use super::images::ImageEntry;
use super::import::{self, Registry};
use super::mcp::McpServer;
use super::model::Model;
use super::paths::{Base, Directories, path, shown_option};
use super::section::Section;
use super::tools::Tool;
use super::turn::{self, Turn};

/// Everything that a configuration says.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `[model]`.
    pub model: Model,
    /// `[turn]` and `[limits]`.
    pub turn: Turn,
    /// `[budgets]`.
    pub budgets: Budgets,
    /// `[files]`; none when the tools are off.
    pub files: Option<Files>,
    /// `[directories]`.
    pub directories: Directories,
    /// `[jail]`.
    pub jail: Jail,
    /// `[images."reference"]`.
    pub images: Vec<ImageEntry>,
    /// `[import]`.
    pub import: ImageLimits,
    /// `[[registries]]`.
    pub registries: Vec<Registry>,
    /// `[docker]`.
    pub docker: Docker,
    /// `[[tools]]`.
    pub tools: Vec<Tool>,
    /// `[[mcp]]`.
    pub mcp: Vec<McpServer>,
    /// `[log]`.
    pub log: Logging,
    /// `[audit]`: the file that gets a line for every turn, if any.
    pub audit: Option<PathBuf>,
}

/// `[jail]`: what must be in force for a turn to run at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jail {
    /// Whether turns are refused where cgroup limits cannot be had.
    pub limits_required: bool,
    /// Whether turns are refused where landlock cannot be had.
    pub landlock_required: bool,
    /// Whether turns are refused while this user is in a privileged group.
    pub groups_refused: bool,
    /// What a workspace may hold in MiB; 0 for no bound.
    pub workspace_max_mb: u32,
    /// What stays free of the workspaces' file system in MiB; 0 for nothing.
    pub disk_reserve_mb: u32,
    /// How many jails are prepared ahead of need.
    pub pool: u16,
}

/// `[log]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logging {
    /// The least severe level that is written.
    pub level: tracing::Level,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Settings {
    /// Reads every section; none when something is missing or wrong, which the reader then knows.
    pub(super) fn read(root: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let model = Model::read(root.section("model"), base);
        let turn = Turn::read(root.section("turn"), root.section("limits"), base);
        let budgets = turn::budgets(root.section("budgets"));
        let files = turn::files(root.section("files"));
        let directories = Directories::read(root.section("directories"), base);
        let jail = Jail::read(root.section("jail"));
        let images = ImageEntry::read_all(&root.section("images"));
        let import = import::limits(root.section("import"));
        let registries = Registry::read_all(&root, base);
        let docker = Docker::read(root.section("docker"), base);
        let log = Logging::read(root.section("log"));
        let audit = root.section("audit");
        let audit_file = path(&audit, "file", base).map(Some).or_shown(None, shown_option);
        audit.finish();
        let tools = root.sections("tools").into_iter().map(|one| Tool::read(one, base));
        let tools = tools.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>();
        let mcp = root.sections("mcp").into_iter().map(|one| McpServer::read(one, base));
        let mcp = mcp.collect::<Vec<_>>().into_iter().collect::<Option<Vec<_>>>();
        root.finish();
        Some(Self {
            model: model?,
            turn: turn?,
            budgets,
            files,
            directories: directories?,
            jail,
            images,
            import,
            registries: registries?,
            docker,
            tools: tools?,
            mcp: mcp?,
            log,
            audit: audit_file,
        })
    }
}

/// What a command needs that runs jails for other programs: no model, no turn.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSettings {
    /// `[directories]`.
    pub directories: Directories,
    /// `[jail]`.
    pub jail: Jail,
    /// `[images."reference"]`.
    pub images: Vec<ImageEntry>,
}

impl HostSettings {
    /// The sections that variables may say something of.
    pub(super) const SECTIONS: [&str; 2] = ["directories", "jail"];

    /// Reads these sections alone: the file may be without the others, and mistakes in them are not
    /// looked for.
    pub(super) fn read(root: &Section<'_>, base: &Base<'_>) -> Option<Self> {
        let directories = Directories::read(root.section("directories"), base);
        let jail = Jail::read(root.section("jail"));
        let images = ImageEntry::read_all(&root.section("images"));
        Some(Self { directories: directories?, jail, images })
    }
}

impl Jail {
    fn read(section: Section<'_>) -> Self {
        let policy = [("required", true), ("best-effort", false)];
        let jail = Self {
            limits_required: section.choice("limits", &policy, false),
            landlock_required: section.choice("landlock", &policy, false),
            groups_refused: section.choice("groups", &[("warn", false), ("refuse", true)], false),
            workspace_max_mb: section.integer("workspace_max_mb", 0..=1_048_576).or(1024) as u32,
            disk_reserve_mb: section.integer("disk_reserve_mb", 0..=1_048_576).or(256) as u32,
            pool: section.integer("pool", 0..=64).or(4) as u16,
        };
        section.finish();
        jail
    }
}

impl Logging {
    pub(super) fn read(section: Section<'_>) -> Self {
        let level = section.choice(
            "level",
            &[
                ("error", tracing::Level::ERROR),
                ("warn", tracing::Level::WARN),
                ("info", tracing::Level::INFO),
                ("debug", tracing::Level::DEBUG),
            ],
            tracing::Level::WARN,
        );
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let format = section.choice("format", &formats, LogFormat::Text);
        section.finish();
        Self { level, format }
    }
}
