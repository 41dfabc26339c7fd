//! The namespace driver: an image's worker in a jail for each turn.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Outcome, Progress,
    Receipt,
};
use turnjail_images::{BUILTIN, Image, ImageError, ImageStore};
use turnjail_protocol::errand::Errand;
use turnjail_protocol::{Reply, WorkerCode};
use turnjail_warden::wire::{Bounds, Facts};

use crate::causes::evidence::Evidence;
use crate::causes::{advise, table};
use crate::client::{Client, ClientOptions};
use crate::doctor::landlock_advice;
use crate::plan::{JailSpec, MIB};
use crate::proof::Proved;
use crate::run::{Ended, run};
use crate::{ImagePolicies, Isolation, Limiter, StartError, groups, process, receipt};

/// The ABI from which on a required landlock counts as there: it mediates truncation.
pub(crate) const LANDLOCK_MINIMUM: u32 = 3;

/// Landlock is applied wherever the kernel has it.
const LANDLOCK: bool = true;

pub(crate) const NAME: &str = "jail";

/// How much a missing wall or limit matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Without it nothing runs.
    Required,
    /// What can be had is taken, and what is missing is said.
    BestEffort,
}

/// Options of the namespace driver.
#[derive(Debug, Clone)]
pub struct JailOptions {
    /// The directory of the image store.
    pub store: PathBuf,
    /// Landlock, from ABI 3 on.
    pub landlock: Policy,
    /// Limits of memory, CPU share and processes by the kernel for the whole jail (cgroups); without
    /// them the limits are per process.
    pub limits: Policy,
    /// Whether supplementary groups that amount to root (docker, disk, ...) stop the start: they
    /// cannot be dropped in a user namespace. Best effort warns.
    pub groups: Policy,
    /// How much a workspace, and a channel's directory beside a shared one, may hold: over it a turn ends
    /// as [`Disk`](ExitReason::Disk), and the next one is refused.
    pub bounds: Bounds,
    /// What is set for single images.
    pub images: ImagePolicies,
    /// How many jails of the image and the limits last used are prepared ahead of need, at most
    /// [`MAX_POOL`](crate::client::MAX_POOL); 0 for none. Only sealed jails can be.
    pub pool: u16,
    /// Where the passes of canaries are kept for the next process of this user; none runs every canary.
    /// For commands that run one turn: a pass is valid for this boot, program file and kernel.
    pub passes: Option<PathBuf>,
}

/// 1 GiB in 100,000 entries, while 256 MiB of the file system stay free.
pub const DEFAULT_BOUNDS: Bounds =
    Bounds { bytes: 1024 * MIB, entries: 100_000, reserve: 256 * MIB };

impl JailOptions {
    /// Best effort everywhere, with the images in `store`.
    pub fn new(store: PathBuf) -> Self {
        let policy = Policy::BestEffort;
        let images = ImagePolicies::default();
        let bounds = DEFAULT_BOUNDS;
        Self {
            store,
            landlock: policy,
            limits: policy,
            groups: policy,
            bounds,
            images,
            pool: ClientOptions::default().pool,
            passes: None,
        }
    }
}

/// Runs workers in jails.
#[derive(Debug)]
pub struct JailDriver {
    store: ImageStore,
    images: ImagePolicies,
    limits: Policy,
    bounds: Bounds,
    passes: Option<PathBuf>,
    pool: ClientOptions,
    /// The running warden; replaced when it has died.
    warden: Mutex<Arc<Proved>>,
    /// One at a time starts a new warden.
    restarting: tokio::sync::Mutex<()>,
    /// A wall that was found absent: then nothing runs any more.
    breach: OnceLock<StartError>,
}

impl JailDriver {
    /// Opens the store, starts a warden, checks the policies against what this host can do, and proves in
    /// throw-away jails that what must fail there fails.
    pub async fn start(options: JailOptions) -> Result<Self, DriverError> {
        check_process(&options)?;
        let store = ImageStore::open(&options.store).map_err(image_error)?;
        let pool = ClientOptions { pool: options.pool, ..ClientOptions::default() };
        let client = Client::start_with(pool).await?;
        check_facts(&options, client.facts())?;
        check_limits(options.limits, client.limiter())?;
        let image = store.resolve(BUILTIN).map_err(image_error)?;
        let warden = Proved::new(client, image, options.passes.as_deref()).await?;
        tell_what_is_in_force(warden.client().facts());
        tell_limits(warden.client().limiter());
        Ok(Self {
            store,
            images: options.images,
            limits: options.limits,
            bounds: options.bounds,
            passes: options.passes,
            pool,
            warden: Mutex::new(Arc::new(warden)),
            restarting: tokio::sync::Mutex::new(()),
            breach: OnceLock::new(),
        })
    }

    /// What the warden found out about this kernel.
    pub fn facts(&self) -> Facts {
        self.current().client().facts().clone()
    }

    /// The process id of the warden's keeper: once this process has ended, nothing of its jails is left
    /// when that one has ended, too.
    pub fn keeper(&self) -> i32 {
        self.current().client().keeper().as_raw_nonzero().get()
    }

    /// Runs the program of an image as a turn's worker is run, and tells how it ended whatever it wrote.
    pub async fn run_program(
        &self,
        spec: &ContainerSpec,
        input: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<(Ended, Receipt), DriverError> {
        spec.check()?;
        check_ids(spec)?;
        let image = self.store.resolve(&spec.image).map_err(image_error)?;
        image.check_runnable().map_err(image_error)?;
        let mut isolation = self.isolation(&spec.image, &image)?;
        let errand = Errand::parse(input);
        isolation.clears = errand == Some(Errand::Clear);
        let warden = self.proved(isolation).await?;
        let client = warden.client();
        let mut jail = JailSpec::for_turn(spec, &image, isolation, LANDLOCK);
        // A workspace that holds too much must still be measured and emptied.
        if errand.is_none() {
            jail.bounds = Some(self.bounds);
        }
        let ended = run(client, &jail, input, cancel, || progress.started()).await?;
        let record = receipt::receipt(spec, &image, &jail, client, &ended);
        progress.ended(&record);
        Ok((ended, record))
    }

    /// What holds the limits of its jails.
    pub fn limiter(&self) -> Limiter {
        self.current().client().limiter().clone()
    }

    fn isolation(&self, reference: &str, image: &Image) -> Result<Isolation, StartError> {
        let digest_of = |other: &str| self.store.resolve(other).ok().map(|image| image.digest);
        self.images.isolation(reference, &image.config, digest_of)
    }

    fn current(&self) -> Arc<Proved> {
        Arc::clone(&self.warden.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A living warden: the one there is, or a new one in the place of a dead one.
    async fn warden(&self) -> Result<Arc<Proved>, DriverError> {
        let warden = self.current();
        if warden.client().alive() {
            return Ok(warden);
        }
        let _one = self.restarting.lock().await;
        let warden = self.current();
        if warden.client().alive() {
            return Ok(warden);
        }
        tracing::warn!("the warden has died; starting another");
        let image = self.store.resolve(BUILTIN).map_err(image_error)?;
        let client = Client::start_with(self.pool).await?;
        check_limits(self.limits, client.limiter())?;
        let fresh = Proved::new(client, image, self.passes.as_deref()).await;
        let warden = Arc::new(fresh.map_err(|error| self.note(error))?);
        *self.warden.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&warden);
        Ok(warden)
    }

    /// A living warden in whose jails of this isolation what must fail fails. Once it did not, never again.
    async fn proved(&self, isolation: Isolation) -> Result<Arc<Proved>, DriverError> {
        if let Some(breach) = self.breach.get() {
            return Err(breach.clone().into());
        }
        let warden = self.warden().await?;
        warden.ensure(isolation).await.map_err(|error| self.note(error))?;
        Ok(warden)
    }

    /// Remembers a breach.
    fn note(&self, error: StartError) -> StartError {
        if matches!(error, StartError::Breach { .. }) {
            tracing::error!(%error, "a wall is absent: no turn runs any more");
            let _ = self.breach.set(error.clone());
        }
        error
    }
}

/// The process that makes jails is an ordinary one: capabilities and the root user would give a jail
/// more than its walls are built for.
fn check_process(options: &JailOptions) -> Result<(), StartError> {
    check_root()?;
    check_capabilities()?;
    process::check_file_size()?;
    check_groups(options.groups)
}

pub(crate) fn check_root() -> Result<(), StartError> {
    if nix::unistd::geteuid().is_root() {
        return Err(StartError::policy(
            "jails are never made by root",
            "run turnjail as an ordinary user",
        ));
    }
    Ok(())
}

pub(crate) fn check_capabilities() -> Result<(), StartError> {
    match caps::read(None, caps::CapSet::Permitted) {
        Ok(held) if held.is_empty() => Ok(()),
        Ok(_) => {
            let advice = advise(&table::CAPABILITIES, &Evidence::here(), &[]);
            Err(StartError::policy(advice.why, &advice.remedy))
        }
        Err(_) => Err(StartError::policy(
            "it cannot be found out whether this process holds capabilities",
            "make capget(2) work",
        )),
    }
}

pub(crate) fn check_groups(policy: Policy) -> Result<(), StartError> {
    let here = Evidence::here();
    let names = groups::privileged(&here).map_err(|e| StartError::host("read the groups", e))?;
    if names.is_empty() {
        return Ok(());
    }
    let names = names.join(", ");
    let advice = advise(&table::GROUPS, &here, &[("groups", &names)]);
    match policy {
        Policy::Required => Err(StartError::policy(advice.why, &advice.remedy)),
        Policy::BestEffort => {
            tracing::warn!(groups = names, "supplementary groups cannot be dropped inside a jail");
            Ok(())
        }
    }
}

pub(crate) fn check_facts(options: &JailOptions, facts: &Facts) -> Result<(), StartError> {
    let abi = facts.landlock_abi;
    if options.landlock == Policy::BestEffort || abi >= LANDLOCK_MINIMUM {
        return Ok(());
    }
    let advice = landlock_advice(abi, &Evidence::here());
    let (why, remedy) = advice.map(|advice| (advice.why, advice.remedy)).unwrap_or_default();
    Err(StartError::policy(
        format!("landlock is required from ABI {LANDLOCK_MINIMUM}: {why}"),
        &format!("{remedy}, or set jail.landlock = \"best-effort\""),
    ))
}

/// What a required cgroup lacks here.
pub(crate) fn check_limits(policy: Policy, limiter: &Limiter) -> Result<(), StartError> {
    if policy == Policy::BestEffort {
        return Ok(());
    }
    match limiter.undelegated() {
        Some(why) => Err(StartError::policy(
            format!("limits of a whole jail are required, and there are no cgroups: {}", why.why),
            &format!("{}, or set limits = \"best-effort\"", why.remedy),
        )),
        None if !limiter.has_cpu_share() => Err(StartError::policy(
            "limits are required, and the cpu controller is not delegated",
            "add Delegate=cpu memory pids to a drop-in of user@.service, or set limits = \"best-effort\"",
        )),
        None => Ok(()),
    }
}

/// Said once: every receipt says it again for its run.
fn tell_what_is_in_force(facts: &Facts) {
    let filter = &facts.sealed_filter;
    tracing::info!(landlock_abi = facts.landlock_abi, filter, "jails are sealed");
    match (facts.landlock_abi, receipt::landlock_lacks(facts.landlock_abi)) {
        (0, _) => {
            tracing::warn!("this kernel has no landlock: files are walled off by mounts alone");
        }
        (abi, lacks) if !lacks.is_empty() => {
            tracing::warn!(abi, lacks = lacks.join(", "), "landlock does not mediate everything");
        }
        _ => {}
    }
}

fn tell_limits(limiter: &Limiter) {
    let limits = limiter.describe();
    match limiter.undelegated() {
        None => tracing::info!(limits, "limits are those of whole jails"),
        // No warning: it is so on most hosts, doctor has the remedy, and every receipt says it again.
        Some(why) => tracing::info!(
            why = why.why,
            remedy = why.remedy,
            "no cgroup: limits are those of single processes, and CPU shares are not limited"
        ),
    }
}

#[async_trait]
impl ContainerDriver for JailDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        let (ended, record) = self.run_program(spec, turn, cancel, progress).await?;
        outcome(ended, record)
    }

    async fn image_protocol(&self, image: &str) -> Result<ImageProtocol, DriverError> {
        let image = self.store.resolve(image).map_err(image_error)?;
        let version = image.config.protocol();
        Ok(version.map_or(ImageProtocol::Unlabelled, ImageProtocol::Version))
    }

    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        let found = self.store.resolve(image).map_err(image_error)?;
        found.check_runnable().map_err(image_error)?;
        Ok(self.isolation(image, &found).map(drop)?)
    }
}

fn check_ids(spec: &ContainerSpec) -> Result<(), DriverError> {
    let ids = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    if (spec.uid, spec.gid) == ids {
        return Ok(());
    }
    let what = format!(
        "the worker's ids must be this process's, {}:{}, not {}:{}",
        ids.0, ids.1, spec.uid, spec.gid
    );
    Err(turnjail_driver::SpecError(what).into())
}

fn image_error(error: ImageError) -> DriverError {
    DriverError::Image { cause: error.to_string(), remedy: error.remedy() }
}

/// The reply, or why there is none.
fn outcome(ended: Ended, mut receipt: Receipt) -> Result<Outcome, DriverError> {
    let code = WorkerCode::from_stderr(&ended.stderr);
    let cause = match receipt.exit {
        ExitReason::Cancelled => return Err(DriverError::Cancelled),
        ExitReason::Ok => match Reply::parse(&ended.stdout) {
            Ok(reply) => return Ok(Outcome { reply, receipt }),
            Err(invalid) => {
                receipt.exit = ExitReason::WorkerFailed;
                format!("the worker ended well but {invalid}")
            }
        },
        reason => match code {
            Some(code) if reason == ExitReason::WorkerFailed => code.words().to_owned(),
            _ => ended.cause(),
        },
    };
    let worker_code = code.map(|code| code.as_str().to_owned());
    let reason = receipt.exit;
    Err(DriverError::Worker { reason, cause, worker_code, receipt: Box::new(receipt) })
}
