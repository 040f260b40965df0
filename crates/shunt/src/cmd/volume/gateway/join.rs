//! `shunt volume invite` and `join`: tokens, with which other machines become nodes of a volume.

use std::io::BufRead;
use std::time::Duration;

use shunt_volume::crypto::VolumeKey;
use shunt_volume::gateway::{Credentials, Token, join};

use super::open_registry;
use crate::args::{InviteArgs, JoinArgs};
use crate::cmd::print;
use crate::cmd::volume::defaults::{credentials_of, own_name};
use crate::cmd::volume::key;
use crate::error::{Result, failed, usage};
use crate::xdg;

/// Separates a token from the key of an encrypted volume.
const KEY_SEPARATOR: char = '+';
/// Limit of a line with a token.
const MAX_TOKEN_BYTES: u64 = 16 << 10;

/// Prints a token.
pub fn invite(args: &InviteArgs) -> Result<()> {
    let name = &args.served.name;
    let registry = open_registry(&args.served, false)?;
    let cannot = |error: &dyn std::fmt::Display| {
        failed(format_args!("cannot create a token for volume {name}: {error}"))
    };
    let address = registry
        .address()
        .map_err(|error| cannot(&error))?
        .ok_or_else(|| cannot(&format_args!("it was never served; run `shunt volume serve {name}` first")))?;
    let good_for = Duration::from_secs(u64::from(args.hours) * 3600);
    let secret = registry.invite(args.role, good_for).map_err(|error| cannot(&error))?;
    let token = Token::new(address, name.clone(), &registry, secret);
    match args.key_file.as_deref().map(|file| key::find(Some(file), name)).transpose()?.flatten() {
        Some(key) => print(format!("{token}{KEY_SEPARATOR}{}\n", key.to_text())),
        None => print(format!("{token}\n")),
    }
}

/// Joins a volume with a token: enrolls this machine as a node and saves its credentials.
pub fn take(args: &JoinArgs) -> Result<()> {
    let text = match args.token.as_str() {
        "-" => token_line(std::io::stdin().lock())?,
        text => text.to_owned(),
    };
    let (token, secret) = match text.rsplit_once(KEY_SEPARATOR) {
        Some((token, secret)) => {
            let secret = VolumeKey::parse(secret)
                .ok_or_else(|| usage("the key in the token is incomplete; copy the whole token"))?;
            (token, Some(secret))
        }
        None => (&text[..], None),
    };
    let token: Token = token.parse().map_err(usage)?;
    let node = args.node.clone().map_or_else(own_name, Ok)?;
    let file = credentials_of(&token.volume);
    if file.exists() {
        return Err(failed(format_args!(
            "this machine is a node of volume {} already; remove {} to join again",
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
            Some(_) => {
                return Err(failed(format_args!(
                    "cannot save the key of the token: {} contains another key; move that file away",
                    file.display()
                )));
            }
            None => key::write(&file, &secret)?,
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
        "" => Err(usage("cannot read the token: there is no token on standard input")),
        _ if length as u64 > MAX_TOKEN_BYTES => {
            Err(usage("cannot read the token: the line on standard input is too long"))
        }
        token => Ok(token.to_owned()),
    }
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
