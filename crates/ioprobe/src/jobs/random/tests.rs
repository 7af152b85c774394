//! Checks that the timed part allocates no memory, for all engines, orders and paces.

use serde_json::{json, Value};

use super::*;
use crate::allocations;
use crate::fileset::create::make;
use crate::protocol::{fields, job_fields, Fields};

fn object(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    }
}

/// A set of two files of 64 blocks, removed on drop.
struct Lab {
    dir: String,
    sets: Registry,
}

impl Lab {
    fn new(name: &str) -> Self {
        let dir = format!("/var/tmp/ioprobe-test-{}-{name}", std::process::id());
        let mut sets = Registry::default();
        let request = json!({"set": "s", "dir": dir, "count": 2, "size": 64 * 4096, "seed": 1, "content": "random"});
        make(fields("fileset", object(request)).unwrap(), &mut sets).unwrap();
        Lab { dir, sets }
    }

    /// Return the number of allocations in the timed part of a job, and the number of operations
    /// done.
    fn allocations(&mut self, request: &Value) -> Result<(u64, u64)> {
        let (common, own): (Common, RandomJob) =
            job_fields("random", object(request.clone())).unwrap();
        check(&common, &own).unwrap();
        let clock = Clock::best();
        let set = self.sets.get("s").unwrap();
        let files = [0, 1];
        let opened = open_all(set, None, &files, &own)?;
        let layout = Layout::of(set, &files, &own)?;
        let mut work = prepare(set, &files, &opened, layout, &own, 1, &clock)?;
        let (count, done) = match own.engine {
            Engine::IoUring => {
                let (mut ring, features) = uring::set_up(own.depth)?;
                let shape = (own.depth, batch(&own), own.direct);
                let mut queue = Queue::new(&mut ring, features, &work, shape);
                allocations::during(|| queue.perform(&mut work, &clock).is_ok())
            }
            _ => allocations::during(|| work.perform(&clock).is_ok()),
        };
        assert!(done);
        Ok((count, work.tally.done))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn the_timed_part_asks_for_no_memory() {
    let mut lab = Lab::new("memory");
    for engine in ["psync", "mmap", "io_uring"] {
        for (order, rate) in [
            ("random", json!(null)),
            ("sequential", json!(null)),
            ("random", json!(50_000)),
        ] {
            let depth = if engine == "io_uring" { 8 } else { 1 };
            let request = json!({
                "set": "s", "engine": engine, "order": order, "rate": rate, "depth": depth,
                "operations": 2000, "write_share": 0.3, "histograms": true, "series": true,
            });
            match lab.allocations(&request) {
                Err(Error::Unsupported(_)) => {}
                found => assert_eq!(found.unwrap(), (0, 2000), "{request}"),
            }
        }
    }
}
