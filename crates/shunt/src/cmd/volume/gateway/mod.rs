//! `shunt volume serve`, `invite`, `join` and `nodes`: the gateway that gives other machines access to a volume, and its nodes.

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use shunt_volume::address::MetaAddress;
use shunt_volume::crypto::VolumeKey;
use shunt_volume::gateway::{Credentials, Gateway, NodeRegistry, Role, Token, is_for_want_of, join};
use shunt_volume::id::{NodeName, VolumeName};
use shunt_volume::open;
use shunt_volume::store::StoreError;
use shunt_volume::volume::Volume;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::defaults::{self, address, credentials_of, own_name};
use super::{key, lock_in};
use crate::args::{InviteArgs, JoinArgs, NodesCommand, ServeArgs, ServedArgs};
use crate::cmd::print;
use crate::error::{Result, failed, usage};
use crate::xdg;
use crate::{inherited, log, sandbox};

/// Separates a token from the key of an encrypted volume.
const KEY: char = '+';
/// Limit of a line with a token.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// A node in the JSON of `nodes list`.
#[derive(Serialize)]
struct Listed {
    name: String,
    role: &'static str,
    /// Seconds since 1970.
    since: i64,
}

/// Serves a volume until a signal ends it.
pub fn serve(args: &ServeArgs) -> Result<()> {
    inherited::give_up();
    if args.sandbox_probe {
        sandbox::probe_on_entry();
    }
    let name = &args.served.name;
    log::start(&args.log)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|error| failed(format_args!("cannot take care of signals: {error}")))?;
    let meta = served(args.meta.as_deref(), name)?;
    let cannot = |error: &dyn std::fmt::Display| failed(format_args!("cannot serve volume {name}: {error}"));
    let volume = open::open_to_serve(&meta, name).map_err(|error| cannot(&error))?;
    let way = match &meta {
        MetaAddress::Gateway(file) => {
            let Credentials { node, address, .. } =
                Credentials::load(file).map_err(|error| cannot(&error))?;
            may_serve(&volume, &node).map_err(|error| cannot(&error))?;
            format!(", by way of {address}")
        }
        _ => String::new(),
    };
    let book = Arc::new(open_book(&args.served, true)?);
    let gateway = Gateway::new(&volume, book.clone()).map_err(|error| cannot(&error))?;
    let serving = gateway
        .listen(&args.listen)
        .map_err(|error| failed(format_args!("cannot listen at {}: {error}", args.listen)))?;
    let port = serving.address().port();
    let address = args.address.clone().unwrap_or_else(|| {
        let host = rustix::system::uname();
        format!("{}:{port}", host.nodename().to_string_lossy())
    });
    book.set_address(&address).map_err(|error| cannot(&error))?;
    print(format!("shunt: volume {name} is served at {}, to nodes as {address}{way}\n", serving.address()))?;
    let book = xdg::directory_of(&book_of(&args.served)).to_owned();
    sandbox::enter_to_serve_stores(&lock_in::places(&meta, &volume.described, [book]));
    signals.forever().next();
    serving.stop().map_err(|error| cannot(&error))
}

/// The address of the metadata of the served volume: a local store if it exists, else the gateway that this machine joined.
fn served(given: Option<&str>, name: &VolumeName) -> Result<MetaAddress> {
    let here = defaults::meta(given, name)?;
    match &here {
        MetaAddress::Sqlite(dir) if given.is_none() && !dir.exists() => Ok(address(None, name)?.0),
        _ => Ok(here),
    }
}

/// Checks that the next gateway lets this machine make requests in the names of its own nodes. While that gateway is unreachable,
/// it retries.
fn may_serve(volume: &Volume, node: &NodeName) -> std::result::Result<(), String> {
    match volume.meta.way() {
        Ok(_) => Ok(()),
        Err(StoreError::Unreachable(why)) => {
            tracing::warn!("nothing is served before the next gateway is there: {why}");
            Ok(())
        }
        Err(StoreError::Denied(why)) if is_for_want_of(&why, Role::Gateway) => Err(format!(
            "{why}: there, `shunt volume nodes role {} {node} {}` lets it",
            volume.described.name,
            Role::Gateway
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// Prints a token.
pub fn invite(args: &InviteArgs) -> Result<()> {
    let name = &args.served.name;
    let book = open_book(&args.served, false)?;
    let cannot =
        |error: &dyn std::fmt::Display| failed(format_args!("cannot invite to volume {name}: {error}"));
    let address = book
        .address()
        .map_err(|error| cannot(&error))?
        .ok_or_else(|| cannot(&format_args!("it was never served: `shunt volume serve {name}` first")))?;
    let good_for = Duration::from_secs(u64::from(args.hours) * 3600);
    let secret = book.invite(args.role, good_for).map_err(|error| cannot(&error))?;
    let token = Token::new(address, name.clone(), &book, secret);
    match args.key_file.as_deref().map(|file| key::find(Some(file), name)).transpose()?.flatten() {
        Some(key) => print(format!("{token}{KEY}{}\n", key.to_text())),
        None => print(format!("{token}\n")),
    }
}

/// Joins a volume with a token: enrolls this machine as a node and saves its credentials.
pub fn take(args: &JoinArgs) -> Result<()> {
    let text = match args.token.as_str() {
        "-" => token_line(std::io::stdin().lock())?,
        text => text.to_owned(),
    };
    let (token, secret) = match text.rsplit_once(KEY) {
        Some((token, secret)) => {
            let secret =
                VolumeKey::parse(secret).ok_or_else(|| usage("the key in the token was not copied whole"))?;
            (token, Some(secret))
        }
        None => (&text[..], None),
    };
    let token: Token = token.parse().map_err(usage)?;
    let node = args.node.clone().map_or_else(own_name, Ok)?;
    let file = credentials_of(&token.volume);
    if file.exists() {
        return Err(failed(format_args!(
            "this machine is a node of volume {} already: remove {} to join anew",
            token.volume,
            file.display()
        )));
    }
    // Prepared before the token is spent.
    xdg::make_directory_of(&file).map_err(failed)?;
    if let Some(secret) = secret {
        let file = key::file_of(&token.volume);
        match key::find(None, &token.volume)? {
            Some(there) if there == secret => {}
            Some(_) => return Err(failed(format_args!("{} has another key", file.display()))),
            None => key::keep(&file, &secret)?,
        }
    }
    let credentials: Credentials = join(&token, &node)
        .map_err(|error| failed(format_args!("cannot join volume {}: {error}", token.volume)))?;
    credentials.save(&file).map_err(failed)?;
    print(format!(
        "shunt: this machine is node {node} of volume {0}: `shunt volume mount {0} DIR`\n",
        token.volume
    ))
}

/// Reads a token from a line of limited length.
fn token_line(from: impl BufRead) -> Result<String> {
    let mut line = String::new();
    let read = from.take(MAX_TOKEN_BYTES + 1).read_line(&mut line);
    let length = read.map_err(|error| usage(format_args!("cannot read the token: {error}")))?;
    match line.trim() {
        "" => Err(usage("there is no token in the standard input")),
        _ if length as u64 > MAX_TOKEN_BYTES => {
            Err(usage("the line in the standard input is too long for a token"))
        }
        token => Ok(token.to_owned()),
    }
}

/// Lists nodes, changes the role of one, or removes one.
pub fn nodes(command: &NodesCommand) -> Result<()> {
    match command {
        NodesCommand::List { served, json } => {
            let nodes = open_book(served, false)?.nodes().map_err(failed)?;
            let listed = nodes.into_iter().map(|node| Listed {
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
            known(open_book(served, false)?.set_role(node, *role).map_err(failed)?, served, node)
        }
        NodesCommand::Remove { served, node } => {
            known(open_book(served, false)?.remove(node).map_err(failed)?, served, node)
        }
    }
}

fn known(is: bool, served: &ServedArgs, node: &impl std::fmt::Display) -> Result<()> {
    if is { Ok(()) } else { Err(failed(format_args!("volume {} has no node {node}", served.name))) }
}

fn book_of(served: &ServedArgs) -> PathBuf {
    let usual = || xdg::data().join(format!("shunt/gateways/{}.book", served.name));
    served.book.clone().unwrap_or_else(usual)
}

fn open_book(served: &ServedArgs, make: bool) -> Result<NodeRegistry> {
    let file = book_of(served);
    if make {
        xdg::make_directory_of(&file).map_err(failed)?;
    } else if !file.exists() {
        return Err(failed(format_args!(
            "{}: not there: `shunt volume serve {}` makes it, or say --book FILE",
            file.display(),
            served.name
        )));
    }
    NodeRegistry::open(&file).map_err(|error| failed(format_args!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_line_of_the_input() {
        assert_eq!(token_line(&b" shunt1.abc+key\r\nmore\n"[..]).unwrap(), "shunt1.abc+key");
        assert_eq!(token_line(&b"shunt1.abc"[..]).unwrap(), "shunt1.abc");
        let long = vec![b'a'; 1 << 20];
        for (input, part) in
            [(&b""[..], "no token"), (b"\n", "no token"), (&long, "too long"), (b"\xff\n", "cannot read")]
        {
            let failure = token_line(input).unwrap_err();
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
