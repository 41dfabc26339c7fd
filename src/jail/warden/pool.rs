//! The jails that are prepared and wait for a plan, and for which plan the next ones are prepared.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::canary::Attempt;
use crate::seccomp::Profile;
use crate::wire::{Bind, Plan, Way};

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

/// The pool.
#[derive(Debug, Default)]
pub struct Pool {
    size: usize,
    /// The last plan that a jail could have been prepared for.
    example: Option<Rc<Plan>>,
    parked: VecDeque<Parked>,
    made: u64,
}

impl Pool {
    /// How many are to wait.
    pub fn resize(&mut self, size: u16) {
        self.size = usize::from(size);
        self.parked.truncate(self.size);
    }

    /// What the next jail is to be prepared for, when there are too few for what was last asked for.
    pub fn wanting(&self) -> Option<Rc<Plan>> {
        let example = self.example.as_ref()?;
        let fitting = self.parked.iter().filter(|parked| fits(&parked.example, example)).count();
        (fitting < self.size).then(|| Rc::clone(example))
    }

    /// Takes note of what is asked for, where it is a turn: a canary's jail or one that only counts is not
    /// what is going to be asked for next.
    pub fn learn(&mut self, plan: &Plan) {
        let known = self.example.as_ref().is_some_and(|example| fits(example, plan));
        let forbidden = plan.attempt.is_some_and(|attempt| attempt != Attempt::Clock);
        let turn = plan.way != Way::Direct && !plan.look_only && !forbidden;
        if turn && self.size > 0 && can_be_prepared(plan) && !known {
            self.example = Some(Rc::new(plan.clone()));
        }
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

    /// Adds a jail. Where there is no room, one for something else goes.
    pub fn add(&mut self, parked: Parked) {
        if self.size == 0 {
            return;
        }
        if self.parked.len() >= self.size {
            let other = |one: &Parked| !fits(&one.example, &parked.example);
            let position = self.parked.iter().position(other).unwrap_or(0);
            self.parked.remove(position);
        }
        self.parked.push_back(parked);
    }

    /// Whether jails for something else have the groups that this plan needs.
    pub fn is_in_the_way(&self, plan: &Plan) -> bool {
        self.parked.iter().any(|parked| keeps_from(&parked.example, plan))
    }

    /// Gives those up. The host hears that their groups are free, and lends others.
    pub fn clear_the_way(&mut self, plan: &Plan) {
        self.parked.retain(|parked| !keeps_from(&parked.example, plan));
    }

    /// Gives up all that wait. None is prepared before the next request that is granted.
    pub fn empty(&mut self) -> VecDeque<Parked> {
        self.forget();
        std::mem::take(&mut self.parked)
    }

    /// None is prepared before the next request.
    pub fn forget(&mut self) {
        self.example = None;
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

/// Whether a jail prepared for `example` can carry out `plan`: they differ in nothing but what is handed to
/// it, or concerns the warden alone.
fn fits(example: &Plan, plan: &Plan) -> bool {
    let place = |bind: &Bind| (bind.target, bind.noexec);
    can_be_prepared(plan)
        && done_ahead(example) == done_ahead(plan)
        && example.binds.iter().map(place).eq(plan.binds.iter().map(place))
}

/// Whether a jail prepared for `example` is in a group with the limits of `plan`, for which it is of no use.
fn keeps_from(example: &Plan, plan: &Plan) -> bool {
    plan.group.is_some() && example.group == plan.group && !fits(example, plan)
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
    use crate::wire::{Bounds, GroupLimits, Source, Target};

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

    #[test]
    fn what_waits_in_the_groups_that_another_plan_needs_gives_way() {
        let file = || std::fs::File::open("/dev/null").expect("a file").into();
        let group = |processes| Some(GroupLimits { memory: 1, processes, cpu_us: 1 });
        let of = |program: &[u8], group| Plan { program: program.to_vec(), group, ..plan() };
        let (one, two) = (of(b"/one", group(1)), of(b"/two", group(1)));
        let (elsewhere, nowhere) = (of(b"/one", group(2)), of(b"/one", None));
        let mut pool = Pool { size: 8, ..Pool::default() };
        for (number, example) in [&one, &two, &elsewhere, &nowhere].into_iter().enumerate() {
            let (number, example) = (number as u64, Rc::new(example.clone()));
            pool.add(Parked { number, example, control: file(), status: file() });
        }
        let left = |pool: &Pool| pool.parked.iter().map(|one| one.number).collect::<Vec<_>>();
        assert!(!pool.is_in_the_way(&nowhere));
        assert!(pool.is_in_the_way(&two));
        pool.clear_the_way(&two);
        assert_eq!(left(&pool), [1, 2, 3]);
        assert!(!pool.is_in_the_way(&two));
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
