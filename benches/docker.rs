//! A whole turn in a jail against the same turn, with the same image, in a container of a real Docker
//! engine.
//!
//! `cargo bench -p turnjail-bench --bench docker`, as root, who starts the engine, or with
//! `TURNJAIL_TEST_DOCKER_HOST` naming one that this user may use. A container takes a quarter of a second, so
//! there are few rounds.

use std::sync::Arc;

use turnjail_bench::turns::{Turns, jails};
use turnjail_bench::{Contender, Scratch, report, side_by_side};
use turnjail_docker::DockerDriver;
use turnjail_driver::ContainerDriver;
use turnjail_tests::{archive, engine};

const TURNS: usize = 40;

fn main() {
    // Only root can.
    engine::start();
    let scratch = Scratch::new();
    if let Some(why) = engine::missing() {
        eprintln!("skipped: no Docker engine: {why}");
        return;
    }
    engine::docker(&["load"], &archive::worker("turnjail-worker:latest"));
    let jail = Turns::new("a turn in a jail", &scratch, "jail", jails);
    let docker = Turns::new("the same in Docker", &scratch, "docker", async |_| {
        let driver = DockerDriver::start(engine::options()).await.expect("an engine");
        Arc::new(driver) as Arc<dyn ContainerDriver>
    });
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(jail), Box::new(docker)];
    report("A whole turn", &side_by_side(&mut contenders, TURNS));
}
