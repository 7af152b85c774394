//! Where folders were before a recording renamed them.
//!
//! The names as they are at the present operation, as a tree: a rename moves a node, and a node knows
//! its first name. A question or a rename costs a look-up for each part of its path, however many
//! renames there were.

use std::collections::HashMap;

use iotrace::MAX_PATH;

/// The recorded folder itself.
const ROOT: u32 = 0;

pub struct Folders {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    /// The folder that it was in at first, and its name there. The root has none.
    first: (u32, Vec<u8>),
    children: HashMap<Vec<u8>, u32>,
}

impl Default for Folders {
    fn default() -> Self {
        Folders {
            nodes: vec![Node::default()],
        }
    }
}

impl Folders {
    /// Take note of a folder that has another name from here on.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) {
        if from.is_empty() || to.is_empty() {
            return;
        }
        let (folder, name) = self.made(from);
        // Out of the tree first: no folder can become its own descendant.
        let moved = match self.nodes[folder as usize].children.remove(name) {
            Some(known) => known,
            None => self.add(folder, name),
        };
        let (folder, name) = self.made(to);
        self.nodes[folder as usize]
            .children
            .insert(name.to_vec(), moved);
    }

    /// Return where a path was at first; None if it is the same, or longer than a path can be.
    pub fn origin(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut at = ROOT;
        let mut rest = path;
        while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
            match self.nodes[at as usize].children.get(&rest[..slash]) {
                Some(child) => at = *child,
                None => break,
            }
            rest = &rest[slash + 1..];
        }
        let mut parts = vec![rest];
        let mut length = rest.len();
        while at != ROOT {
            let (folder, name) = &self.nodes[at as usize].first;
            parts.push(name);
            at = *folder;
            length += name.len() + 1;
            if length > MAX_PATH {
                return None;
            }
        }
        parts.reverse();
        Some(parts.join(&b'/')).filter(|found| found != path)
    }

    /// Return the node of the folder that a path is in, and the path's last part. Folders that have no
    /// node yet get one.
    fn made<'a>(&mut self, path: &'a [u8]) -> (u32, &'a [u8]) {
        let mut at = ROOT;
        let mut rest = path;
        while let Some(slash) = rest.iter().position(|byte| *byte == b'/') {
            let name = &rest[..slash];
            at = match self.nodes[at as usize].children.get(name) {
                Some(child) => *child,
                None => {
                    let child = self.add(at, name);
                    self.nodes[at as usize]
                        .children
                        .insert(name.to_vec(), child);
                    child
                }
            };
            rest = &rest[slash + 1..];
        }
        (at, rest)
    }

    fn add(&mut self, folder: u32, name: &[u8]) -> u32 {
        self.nodes.push(Node {
            first: (folder, name.to_vec()),
            children: HashMap::new(),
        });
        self.nodes.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folders that were renamed: where each is now, and where it was. Every rename goes through all.
    #[derive(Default, Debug)]
    struct Slow(Vec<(String, String)>);

    impl Slow {
        fn origin(&self, path: &str) -> String {
            let below = |(now, was): &(String, String)| {
                let rest = path.strip_prefix(now.as_str())?;
                let inside = rest.is_empty() || rest.starts_with('/');
                inside.then(|| (now.len(), format!("{was}{rest}")))
            };
            let found = self.0.iter().filter_map(below).max();
            found.map_or(path.to_string(), |(_, origin)| origin)
        }

        fn rename(&mut self, from: &str, to: &str) {
            let origin = self.origin(from);
            let is_in =
                |path: &str, folder: &str| format!("{path}/").starts_with(&format!("{folder}/"));
            self.0.retain(|(now, _)| !is_in(now, to));
            for (now, _) in self.0.iter_mut().filter(|(now, _)| is_in(now, from)) {
                *now = format!("{to}{}", &now[from.len()..]);
            }
            if !self.0.iter().any(|(now, _)| now == to) {
                self.0.push((to.to_string(), origin));
            }
        }
    }

    fn origin(folders: &Folders, path: &str) -> Option<String> {
        let found = folders.origin(path.as_bytes())?;
        Some(String::from_utf8(found).unwrap())
    }

    #[test]
    fn the_origin_is_that_of_following_every_folder() {
        let mut state = 11_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut moved = 0;
        for _ in 0..2000 {
            let (mut folders, mut slow) = (Folders::default(), Slow::default());
            for _ in 0..next(8) {
                let mut path = || {
                    let parts: Vec<String> = (0..=next(3)).map(|_| next(3).to_string()).collect();
                    parts.join("/")
                };
                let (from, to) = (path(), path());
                // The kernel refuses to move a folder into itself, or over what holds it.
                if format!("{to}/").starts_with(&format!("{from}/"))
                    || format!("{from}/").starts_with(&format!("{to}/"))
                {
                    continue;
                }
                folders.rename(from.as_bytes(), to.as_bytes());
                slow.rename(&from, &to);
            }
            for _ in 0..10 {
                let parts: Vec<String> = (0..=next(4)).map(|_| next(3).to_string()).collect();
                let path = parts.join("/");
                let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
                let wanted = match folder {
                    "" => path.clone(),
                    _ => format!("{}/{name}", slow.origin(folder)),
                };
                let found = origin(&folders, &path);
                moved += u64::from(found.is_some());
                assert_eq!(found.unwrap_or(path.clone()), wanted, "{path}, {slow:?}");
            }
        }
        assert!(moved > 2000, "{moved}");
    }

    #[test]
    fn an_origin_is_no_longer_than_a_path_can_be() {
        let deep = vec!["x"; 1500].join("/");
        let mut folders = Folders::default();
        folders.rename(deep.as_bytes(), b"a");
        assert_eq!(origin(&folders, "a/f").unwrap(), format!("{deep}/f"));
        folders.rename(format!("a/{deep}").as_bytes(), b"b");
        assert_eq!(origin(&folders, "b/f"), None);
        // A folder that is moved into itself, which no kernel does.
        folders.rename(b"a", b"a/c");
        assert!(origin(&folders, "a/c/f").is_some());
    }
}
