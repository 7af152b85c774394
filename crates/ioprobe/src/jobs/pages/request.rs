//! What can be asked of the `pages` job, refused before anything is sent, and the requests as they go out.

use std::net::SocketAddr;

use super::client::Route;
use super::load::Pages;
use super::mask::Pattern;
use crate::error::{Error, Result};
use crate::jobs::require_root_for_user;
use crate::protocol::{Common, PagesJob, Redirects};

const MOST_PAGES: usize = 10_000;
const LONGEST_PAGE: usize = 4096;
const MOST_CLIENTS: u32 = 256;
const MOST_WARMUPS: u32 = 1000;
const MOST_REQUESTS: u64 = 10_000_000;
const MOST_PATTERNS: usize = 64;
const MOST_BODY: usize = 64 << 20;

/// Everything laid out for the load, and the pause between requests in nanoseconds.
pub fn laid_out(common: &Common, own: &PagesJob) -> Result<(Pages, Route, u64)> {
    let address = check(common, own)?;
    let pages = Pages {
        names: own.pages.clone(),
        requests: own
            .pages
            .iter()
            .map(|page| request(page, &own.host, own.keep_alive))
            .collect(),
        expect_status: own.expect_status,
        count_redirects: own.redirects == Redirects::Count,
        ignore: own
            .ignore
            .iter()
            .map(|text| Pattern::parse(text))
            .collect::<Result<_>>()?,
    };
    let route = Route {
        address,
        keep_alive: own.keep_alive,
        timeout_ns: (own.timeout_s * 1e9) as u64,
        most_body: MOST_BODY,
    };
    Ok((pages, route, (own.delay_s * 1e9) as u64))
}

/// Whether it can be done, and where: only this machine is asked, unless the job says that another one may be.
pub fn check(common: &Common, own: &PagesJob) -> Result<SocketAddr> {
    let bad = |field: &str, wanted: &str, found: String| {
        Err(Error::bad(format!(
            "request pages: {field}: wanted {wanted}, found {found}"
        )))
    };
    if common.set.is_some() || common.files.is_some() || common.view.is_some() {
        return bad("set", "none, for it works on no files", "one".into());
    }
    match (&own.browser, &own.profile) {
        (None, None) if common.user.is_some() => {
            return bad("user", "none, for a request has no user", "one".into());
        }
        (None, None) => {}
        (Some(browser), Some(profile)) if browser.starts_with('/') && profile.starts_with('/') => {
            if common.user.is_some() {
                require_root_for_user()?;
            }
            if own.host != own.address {
                return bad(
                    "host",
                    "the address, as a browser asks for it",
                    own.host.clone(),
                );
            }
        }
        _ => {
            return bad(
                "browser",
                "a program and its profile, both by absolute paths",
                "something else".into(),
            )
        }
    }
    let address = match own.address.parse::<SocketAddr>() {
        Ok(address) => address,
        Err(_) => {
            let found = own.address.chars().take(100).collect::<String>();
            return bad("address", "an IP address with a port", format!("{found:?}"));
        }
    };
    if !(address.ip().is_loopback() || own.anywhere) {
        return bad(
            "address",
            "one of this machine's own (loopback)",
            address.to_string(),
        );
    }
    let plain = |text: &str| text.bytes().all(|b| (0x21..=0x7e).contains(&b));
    if own.host.is_empty() || own.host.len() > 300 || !plain(&own.host) {
        return bad("host", "a host's name", format!("{:.100?}", own.host));
    }
    if own.pages.is_empty() || own.pages.len() > MOST_PAGES {
        return bad("pages", "1 to 10000 of them", own.pages.len().to_string());
    }
    for page in &own.pages {
        if !page.starts_with('/') || page.len() > LONGEST_PAGE || !plain(page) {
            return bad(
                "pages",
                "paths such as /index.html",
                format!("{page:.100?}"),
            );
        }
    }
    if !(1..=MOST_CLIENTS).contains(&own.clients) {
        return bad("clients", "1 to 256", own.clients.to_string());
    }
    if own.warmup > MOST_WARMUPS {
        return bad("warmup", "at most 1000", own.warmup.to_string());
    }
    let passes = u64::from(common.replicates.max(own.warmup));
    let requests = (own.pages.len() as u64) * u64::from(own.clients);
    if requests.saturating_mul(passes) > MOST_REQUESTS {
        return bad(
            "pages",
            "at most 10 million requests",
            format!("{passes} times {requests}"),
        );
    }
    if !(own.delay_s.is_finite() && (0.0..=3600.0).contains(&own.delay_s)) {
        return bad("delay_s", "between 0 and 3600", own.delay_s.to_string());
    }
    if !(own.timeout_s.is_finite() && (0.001..=3600.0).contains(&own.timeout_s)) {
        return bad(
            "timeout_s",
            "between 0.001 and 3600",
            own.timeout_s.to_string(),
        );
    }
    if !(100..=599).contains(&own.expect_status) {
        return bad(
            "expect_status",
            "between 100 and 599",
            own.expect_status.to_string(),
        );
    }
    if own.ignore.len() > MOST_PATTERNS {
        return bad(
            "ignore",
            "at most 64 patterns",
            own.ignore.len().to_string(),
        );
    }
    for text in &own.ignore {
        Pattern::parse(text)?;
    }
    Ok(address)
}

/// Encodings are not asked for, so that bodies come as they are.
fn request(page: &str, host: &str, keep_alive: bool) -> Vec<u8> {
    let connection = if keep_alive { "keep-alive" } else { "close" };
    format!(
        "GET {page} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ioprobe/{}\r\nAccept: */*\r\nConnection: {connection}\r\n\r\n",
        env!("CARGO_PKG_VERSION")
    )
    .into_bytes()
}
