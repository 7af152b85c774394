//! The `pages` job: a list of pages requested from a web server, and how long each response takes.
//!
//! The server is somebody else's or the study's own; the probe only asks. A response's time goes from the request, with the
//! connection where one has to be made, to the last byte of the body. What is in a body is looked at afterwards, and told as a
//! number by which the pages of two treatments can be compared.

mod browser;
mod client;
mod devtools;
mod load;
mod mask;
pub mod request;
pub mod response;
pub mod server;

use serde_json::{json, Value};

use self::browser::{Browser, Start};
use self::client::Route;
use self::load::{Load, Pages, Tally};
use self::request::laid_out;
use self::server::Server;
use super::stopwatch::{Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::Whose;
use super::watch::Watch;
use crate::clock::Clock;
use crate::counters::devices::Counters;
use crate::error::Result;
use crate::isolate::Origin;
use crate::process::start::Starter;
use crate::protocol::{Common, PagesJob};

pub fn run(
    (common, own): (Common, PagesJob),
    (clock, stretch): (&Clock, &mut Stretch),
    origin: &Origin,
    (starter, isolated): (&mut Starter, bool),
) -> Result<Value> {
    let (pages, route, delay_ns) = laid_out(&common, &own)?;
    let mut asking = match &own.browser {
        None => Asking::Load(Load::new(&pages, &route, clock, own.clients)),
        Some(program) => {
            let start = Start {
                program,
                profile: own.profile.as_deref().unwrap_or_default(),
                user: common.user,
                isolated,
            };
            Asking::Browser(Browser::open(start, &route, own.clients, starter)?)
        }
    };
    let done = measured(
        (&common, &own),
        (&pages, &route, delay_ns),
        (clock, stretch),
        origin,
        &mut asking,
    );
    match asking {
        Asking::Browser(browser) => {
            let resources = browser.resources;
            browser.close()?;
            let mut answer = done?;
            answer["resources"] = json!(resources);
            Ok(answer)
        }
        Asking::Load(_) => done,
    }
}

/// Who asks for the pages.
enum Asking<'a> {
    Load(Load<'a>),
    Browser(Browser<'a>),
}

fn measured(
    (common, own): (&Common, &PagesJob),
    (pages, route, delay_ns): (&Pages, &Route, u64),
    (clock, stretch): (&Clock, &mut Stretch),
    origin: &Origin,
    asking: &mut Asking,
) -> Result<Value> {
    let mut perform = |passes: u32, delay_ns: u64, tally: &mut Tally| match asking {
        Asking::Load(load) => load.perform(passes, delay_ns, tally),
        Asking::Browser(browser) => {
            browser.perform((pages, route), (passes, delay_ns), clock, tally)
        }
    };
    let mut warmed = Tally::new(pages.names.len());
    perform(own.warmup, 0, &mut warmed)?;
    let mut tally = Tally::new(pages.names.len());

    let server = Server::at(&route.address, &origin.proc);
    let mut watch = Watch::begin(Counters::open(&common.devices)?, common.peer.as_deref())?;
    let stopwatch = Stopwatch::start(Whose::ThisThread);
    let start = clock.ticks();
    let done = match warmed.failed {
        0 => perform(common.replicates, delay_ns, &mut tally),
        _ => Ok(()),
    };
    let span = Span {
        start,
        end: clock.ticks(),
    };
    // Of the time of responses, not of the pauses between them.
    let total_ticks = tally.recorder.total_ticks();
    let timed = stopwatch.stop(&span, |_| total_ticks, (clock, stretch), common);
    watch.end()?;
    done?;

    let server = server.since();
    let failed = if warmed.failed > 0 { &warmed } else { &tally };
    let mut answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.verified = failed.failed == 0;
    let each = tally.pages.iter();
    let varied = each.clone().enumerate().filter(|(_, page)| page.varied);
    let pages = json!({
        "total_ns": each.clone().map(|page| clock.ns_of(page.ticks)).collect::<Vec<_>>(),
        "count": each.clone().map(|page| page.count).collect::<Vec<_>>(),
        "bytes": each.clone().map(|page| page.bytes).collect::<Vec<_>>(),
        "body": each.map(|page| page.mark.map(|mark| format!("{mark:016x}"))).collect::<Vec<_>>(),
        "varied": varied.map(|(n, _)| n).collect::<Vec<_>>(),
    });
    let (failures, failed) = (json!(failed.failures()), failed.failed);
    let response = tally
        .recorder
        .finish(clock, timed.spun.wall_ns, own.histograms);
    answer.with(json!({
        "failures": failures,
        "failed": failed,
        "server": server,
        "connections": tally.connections,
        "redirects": tally.redirects,
        "received_bytes": tally.received,
        "statuses": tally.statuses,
        "pages": pages,
        "operations": {"response": response},
    }))
}
