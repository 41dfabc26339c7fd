//! The jails that are prepared and wait for a plan, and for which plan the next ones are prepared.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::canary::Attempt;
use crate::seccomp::Profile;
use crate::wire::{Bind, GroupLimits, Plan, Way};

/// Marks the number of a jail that is not yet the host's. The host counts from 1 and never gets here.
const OURS: u64 = 1 << 63;

/// A prepared jail as the warden holds it. Letting go of it ends the jail.
#[derive(Debug)]
pub struct Parked {
    /// The warden's own number for it.
    pub number: u64,
    /// What it was prepared for.
    pub example: Rc<Plan>,
    /// Where it takes the descriptors of one plan.
    pub control: OwnedFd,
    /// The reading end of its status pipe.
    pub status: OwnedFd,
}

impl Parked {
    fn waits_for(&self, plan: &Rc<Plan>) -> bool {
        Rc::ptr_eq(&self.example, plan) || fits(&self.example, plan)
    }
}

/// After how many requests for something else a plan is not expected any more.
const FORGOTTEN_AFTER: u64 = 16;

/// A plan that was asked for and can be prepared for.
#[derive(Debug)]
struct Example {
    plan: Rc<Plan>,
    /// The number of the last request for it.
    asked: u64,
}

/// The pool. Plans that were asked for lately share it evenly, so that those which take turns do not drive
/// each other out.
#[derive(Debug, Default)]
pub struct Pool {
    size: usize,
    /// The last one first. Never more than may wait.
    examples: VecDeque<Example>,
    requests: u64,
    parked: VecDeque<Parked>,
    made: u64,
    /// None is prepared that has a group: its view of that is a namespace, of which there are few.
    without_groups: bool,
}

impl Pool {
    /// Where there are few cgroup namespaces, none is held by a jail that waits.
    pub fn new(few_views: bool) -> Self {
        Self { without_groups: few_views, ..Self::default() }
    }

    /// How many are to wait. Comes back with those that are too many.
    pub fn resize(&mut self, size: u16) -> VecDeque<Parked> {
        self.size = usize::from(size);
        self.examples.truncate(self.size);
        self.parked.split_off(self.parked.len().min(self.size))
    }

    /// How many groups with these limits are of use to jails that are going to be prepared.
    pub fn uses(&self, limits: GroupLimits) -> usize {
        let used = self.examples.iter().any(|example| example.plan.group == Some(limits));
        if used { self.size } else { 0 }
    }

    /// What the next jail is to be prepared for: what lacks its share, or what was asked for last, where
    /// shares leave room.
    pub fn wanting(&self) -> Option<Rc<Plan>> {
        let lacks = |example: &&Example| self.count(&example.plan) < self.share();
        let room = || {
            let expected = self.parked.iter().filter(|parked| self.is_expected(parked)).count();
            self.examples.front().filter(|_| expected < self.size)
        };
        let example = self.examples.iter().find(lacks).or_else(room)?;
        Some(Rc::clone(&example.plan))
    }

    /// How many each of the examples may have, whatever the others have.
    fn share(&self) -> usize {
        self.size / self.examples.len().max(1)
    }

    /// How many wait for a plan.
    fn count(&self, plan: &Rc<Plan>) -> usize {
        self.parked.iter().filter(|parked| parked.waits_for(plan)).count()
    }

    fn is_expected(&self, parked: &Parked) -> bool {
        self.examples.iter().any(|example| parked.waits_for(&example.plan))
    }

    /// Takes note of what is asked for.
    pub fn learn(&mut self, plan: &Plan) {
        let group = plan.group.is_some() && self.without_groups;
        if self.size == 0 || group || !may_come_again(plan) {
            return;
        }
        self.requests += 1;
        let known = self.examples.iter().position(|example| fits(&example.plan, plan));
        let plan = match known.and_then(|position| self.examples.remove(position)) {
            Some(Example { plan, .. }) => plan,
            None => Rc::new(plan.clone()),
        };
        self.examples.push_front(Example { plan, asked: self.requests });
        self.examples.truncate(self.size);
        self.examples.retain(|example| self.requests - example.asked < FORGOTTEN_AFTER);
    }

    /// The longest waiting jail that fits a plan.
    pub fn take(&mut self, plan: &Plan) -> Option<Parked> {
        let position = self.parked.iter().position(|parked| fits(&parked.example, plan))?;
        self.parked.remove(position)
    }

    /// The number of a new jail.
    pub fn number(&mut self) -> u64 {
        self.made += 1;
        OURS | self.made
    }

    /// Adds a jail. Where there is no room, comes back with the one that goes.
    pub fn add(&mut self, parked: Parked) -> Option<Parked> {
        if self.size == 0 {
            return Some(parked);
        }
        let other = if self.parked.len() < self.size {
            None
        } else {
            let position = self.spare(|other| !other.waits_for(&parked.example)).unwrap_or(0);
            self.parked.remove(position)
        };
        self.parked.push_back(parked);
        other
    }

    /// One that nobody expects, else one of more than their share.
    fn spare(&self, among: impl Fn(&Parked) -> bool) -> Option<usize> {
        let spare = |is_spare: &dyn Fn(&Parked) -> bool| {
            self.parked.iter().position(|parked| among(parked) && is_spare(parked))
        };
        spare(&|parked| !self.is_expected(parked))
            .or_else(|| spare(&|parked| self.count(&parked.example) > self.share()))
    }

    /// One for something else that can be spared and waits in a group as this plan needs it.
    fn in_the_way(&self, plan: &Rc<Plan>) -> Option<usize> {
        plan.group?;
        self.spare(|parked| parked.example.group == plan.group && !parked.waits_for(plan))
    }

    /// Whether there is such a one.
    pub fn is_in_the_way(&self, plan: &Rc<Plan>) -> bool {
        self.in_the_way(plan).is_some()
    }

    /// Takes those. Once they have ended the host lends other groups with the next request.
    pub fn clear_the_way(&mut self, plan: &Rc<Plan>) -> Vec<Parked> {
        let mut cleared = Vec::new();
        while let Some(position) = self.in_the_way(plan) {
            cleared.extend(self.parked.remove(position));
        }
        cleared
    }

    /// Gives up all that wait. None is prepared before the next request that is granted.
    pub fn empty(&mut self) {
        self.forget();
        self.parked.clear();
    }

    /// None is prepared before the next request.
    pub fn forget(&mut self) {
        self.examples.clear();
    }

    /// A jail has ended. When it was waiting, its preparation has failed, and none is tried again before
    /// the next request.
    pub fn ended(&mut self, number: u64) {
        if let Some(position) = self.parked.iter().position(|parked| parked.number == number) {
            self.parked.remove(position);
            self.forget();
        }
    }
}

/// Whether a number is one of [`Pool::number`].
pub fn is_ours(number: u64) -> bool {
    number & OURS != 0
}

/// Whether a jail can be prepared before this plan is known: one of the sealed profile, whose program is
/// its first process, and that does not clear a workspace.
pub fn can_be_prepared(plan: &Plan) -> bool {
    plan.profile == Profile::Sealed && !plan.clears
}

/// Whether jails are prepared for the next plan like this one. A canary's jail or one that only counts is not
/// what is going to be asked for next.
pub fn may_come_again(plan: &Plan) -> bool {
    let forbidden = plan.attempt.is_some_and(|attempt| attempt != Attempt::Clock);
    plan.way != Way::Direct && !plan.look_only && !forbidden && can_be_prepared(plan)
}

/// Whether a jail prepared for `example` can carry out `plan`: they differ in nothing but what is handed to
/// it, or concerns the warden alone.
fn fits(example: &Plan, plan: &Plan) -> bool {
    let place = |bind: &Bind| (bind.target, bind.noexec);
    can_be_prepared(plan)
        && done_ahead(example) == done_ahead(plan)
        && example.binds.iter().map(place).eq(plan.binds.iter().map(place))
}

/// Everything of a plan but its directories, its number and its way. By name, so that whoever adds a field
/// has to say what it is.
fn done_ahead(plan: &Plan) -> impl PartialEq {
    let Plan {
        id: _,
        lent: _,
        way: _,
        binds: _,
        uid,
        gid,
        root,
        tmp_bytes,
        tmp_inodes,
        profile,
        loopback,
        clears,
        program,
        arguments,
        environment,
        working_dir,
        hostname,
        umask,
        rlimits,
        nice,
        landlock,
        attempt,
        group,
        bounds,
        look_only,
    } = plan;
    (
        (uid, gid, root, hostname, umask, tmp_bytes, tmp_inodes),
        (profile, loopback, clears, group, landlock),
        (program, arguments, environment, working_dir, nice, rlimits),
        (attempt, bounds, look_only),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Bounds, Source, Target};

    fn source(ino: u64) -> Source {
        Source { path: format!("/{ino}").into_bytes(), dev: 1, ino }
    }

    fn plan() -> Plan {
        let bind = |ino, target, noexec| Bind { source: source(ino), target, noexec };
        Plan {
            id: 1,
            uid: 1000,
            gid: 1000,
            root: source(2),
            binds: vec![bind(3, Target::Broker, true), bind(4, Target::Workspace, true)],
            tmp_bytes: 1 << 26,
            tmp_inodes: 1 << 12,
            profile: Profile::Sealed,
            loopback: false,
            clears: false,
            program: b"/worker".to_vec(),
            arguments: vec![b"/worker".to_vec()],
            environment: vec![b"HOME=/tmp/home".to_vec()],
            working_dir: b"/".to_vec(),
            hostname: b"sandbox".to_vec(),
            umask: 0o77,
            rlimits: vec![(7, 256)],
            nice: 5,
            landlock: true,
            attempt: None,
            way: Way::Any,
            group: None,
            lent: 0,
            bounds: None,
            look_only: false,
        }
    }

    #[test]
    fn a_jail_fits_the_plans_that_differ_in_what_is_handed_over() {
        let handed: [fn(&mut Plan); 4] = [
            |plan| plan.id = 2,
            |plan| plan.lent = 7,
            |plan| plan.way = Way::Prepared,
            |plan| plan.binds[1].source = source(9),
        ];
        assert!(fits(&plan(), &plan()));
        for (number, change) in handed.iter().enumerate() {
            let mut other = plan();
            change(&mut other);
            assert!(fits(&plan(), &other), "change {number}");
        }
    }

    fn of(program: &[u8], processes: Option<u32>) -> Plan {
        let group = processes.map(|processes| GroupLimits { memory: 1, processes, cpu_us: 1 });
        Plan { program: program.to_vec(), group, ..plan() }
    }

    fn fill(pool: &mut Pool) {
        let file = || std::fs::File::open("/dev/null").expect("a file").into();
        while let Some(example) = pool.wanting() {
            let number = pool.number();
            pool.add(Parked { number, example, control: file(), status: file() });
        }
        assert_eq!(pool.parked.len(), pool.size);
    }

    fn waiting(pool: &Pool, plan: &Plan) -> usize {
        pool.parked.iter().filter(|parked| fits(&parked.example, plan)).count()
    }

    #[test]
    fn plans_that_take_turns_share_the_pool() {
        let (one, two, three) = (of(b"/one", None), of(b"/two", None), of(b"/three", None));
        let mut pool = Pool { size: 5, ..Pool::default() };
        pool.learn(&one);
        fill(&mut pool);
        assert_eq!(waiting(&pool, &one), 5);
        pool.learn(&two);
        fill(&mut pool);
        for round in 0..10 {
            for plan in [&one, &two] {
                assert!(pool.take(plan).is_some(), "{round}");
                pool.learn(plan);
                fill(&mut pool);
            }
        }
        // A third one has its share, too; and who does not come again has none in the end.
        for plan in [&three].into_iter().chain([&one; FORGOTTEN_AFTER as usize - 1]) {
            pool.learn(plan);
            fill(&mut pool);
        }
        let left = [&one, &two, &three].map(|plan| waiting(&pool, plan));
        assert_eq!(left, [3, 0, 2]);
        pool.learn(&one);
        fill(&mut pool);
        assert_eq!(waiting(&pool, &one), 5);
    }

    #[test]
    fn what_waits_in_the_groups_that_another_plan_needs_gives_way() {
        let one = of(b"/one", Some(1));
        let (two, elsewhere) = (of(b"/two", Some(1)), of(b"/one", Some(2)));
        let mut pool = Pool { size: 4, ..Pool::default() };
        pool.learn(&one);
        fill(&mut pool);
        let way = |plan: &Plan| Rc::new(plan.clone());
        pool.learn(&elsewhere);
        assert!(!pool.is_in_the_way(&way(&elsewhere)), "in other groups");
        pool.forget();
        pool.learn(&one);
        pool.learn(&two);
        assert!(pool.is_in_the_way(&way(&two)));
        assert_eq!(pool.clear_the_way(&way(&two)).len(), 2);
        assert_eq!(waiting(&pool, &one), 2, "its share");
        assert!(!pool.is_in_the_way(&way(&two)));
    }

    #[test]
    fn a_jail_fits_no_plan_that_differs_in_anything_else() {
        let bounds = Bounds { bytes: 1, entries: 1, reserve: 0 };
        let changes: [fn(&mut Plan); 24] = [
            |plan| plan.uid = 0,
            |plan| plan.gid = 0,
            |plan| plan.root.path = b"/other".to_vec(),
            |plan| plan.root.ino = 9,
            |plan| plan.root.dev = 9,
            |plan| plan.binds[0].target = Target::Channel,
            |plan| plan.binds[1].noexec = false,
            |plan| plan.binds.reverse(),
            |plan| plan.binds.truncate(1),
            |plan| plan.tmp_bytes += 1,
            |plan| plan.tmp_inodes += 1,
            |plan| plan.profile = Profile::General,
            |plan| plan.loopback = true,
            |plan| plan.clears = true,
            |plan| plan.program = b"/other".to_vec(),
            |plan| plan.arguments.push(b"more".to_vec()),
            |plan| plan.environment.clear(),
            |plan| plan.working_dir = b"/tmp".to_vec(),
            |plan| plan.hostname = b"other".to_vec(),
            |plan| plan.umask = 0o22,
            |plan| plan.rlimits[0].1 += 1,
            |plan| plan.nice = 0,
            |plan| plan.landlock = false,
            |plan| plan.look_only = true,
        ];
        let group = GroupLimits { memory: 1, processes: 1, cpu_us: 1 };
        let mut others = vec![
            Plan { attempt: Some(Attempt::Clock), ..plan() },
            Plan { group: Some(group), ..plan() },
            Plan { bounds: Some(bounds), ..plan() },
        ];
        others.extend(changes.iter().map(|change| {
            let mut other = plan();
            change(&mut other);
            other
        }));
        for other in others {
            assert!(!fits(&plan(), &other), "{other:?}");
            assert!(!fits(&other, &plan()), "{other:?}");
        }
    }
}
