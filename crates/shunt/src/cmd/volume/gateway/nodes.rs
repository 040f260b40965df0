//! `shunt volume nodes`: lists the nodes of a volume, changes their roles, and removes them.

use serde::Serialize;

use super::open_registry;
use crate::args::{NodesCommand, ServedArgs};
use crate::cmd::print;
use crate::error::{Result, failed};

/// A node in the JSON of `nodes list`.
#[derive(Serialize)]
struct NodeJson {
    name: String,
    role: &'static str,
    /// Seconds since 1970.
    since: i64,
}

/// Lists nodes, changes the role of one, or removes one.
pub fn run(command: &NodesCommand) -> Result<()> {
    match command {
        NodesCommand::List { served, json } => {
            let nodes = open_registry(served, false)?.nodes().map_err(failed)?;
            let listed = nodes.into_iter().map(|node| NodeJson {
                name: node.name.to_string(),
                role: node.role.as_str(),
                since: node.since,
            });
            if *json {
                let text = serde_json::to_string(&listed.collect::<Vec<_>>()).map_err(failed)?;
                return print(format!("{text}\n"));
            }
            print(listed.map(|node| format!("{:<7} {}\n", node.role, node.name)).collect::<String>())
        }
        NodesCommand::Role { served, node, role } => {
            ensure_known(open_registry(served, false)?.set_role(node, *role).map_err(failed)?, served, node)
        }
        NodesCommand::Remove { served, node } => {
            ensure_known(open_registry(served, false)?.remove(node).map_err(failed)?, served, node)
        }
    }
}

fn ensure_known(is: bool, served: &ServedArgs, node: &impl std::fmt::Display) -> Result<()> {
    if is { Ok(()) } else { Err(failed(format_args!("volume {} has no node {node}", served.name))) }
}
