//! The Host header of an HTTP request to a loopback address.
//!
//! A server on a loopback address must check it: a web page whose name was changed to that address (DNS rebinding) can send it
//! requests through the user's browser and read the responses. Such requests have the page's name as the host.

use std::net::IpAddr;

use hyper::http::uri::Authority;

/// The host that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `localhost`, which browsers do not look up.
    Localhost,
    /// An address, which no page can choose as its name.
    Address(IpAddr),
    /// Any other name, or an invalid header.
    Other,
}

impl Host {
    /// Parses `HOST` or `HOST:PORT`. Any port: it may be forwarded, as by ssh.
    pub fn parse(header: &str) -> Self {
        let Ok(authority) = header.parse::<Authority>() else { return Self::Other };
        // The parser also accepts `USER@HOST` and `[::1]MORE`.
        let Some(port) = header.strip_prefix(authority.host()) else { return Self::Other };
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
            return Self::Other;
        }
        let name = authority.host();
        if name.eq_ignore_ascii_case("localhost") {
            return Self::Localhost;
        }
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        address.parse().map_or(Self::Other, Self::Address)
    }

    /// Reports whether this is `localhost` or a loopback address.
    pub fn is_loopback(self) -> bool {
        match self {
            Self::Localhost => true,
            Self::Address(address) => address.is_loopback(),
            Self::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_loopback_and_others_are_not() {
        for header in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.1.2.3:9", "[::1]", "[::1]:9"] {
            assert!(Host::parse(header).is_loopback(), "{header}");
        }
        for header in ["0.0.0.0", "[::]:9", "10.0.0.1"] {
            let host = Host::parse(header);
            assert!(matches!(host, Host::Address(_)) && !host.is_loopback(), "{header}");
        }
        for header in [
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example:9",
            "a@localhost",
            "localhost@evil.example:9",
            "localhost:x@evil.example",
            "localhost:",
            "[::1]evil.example",
            "[::1",
        ] {
            assert_eq!(Host::parse(header), Host::Other, "{header}");
        }
    }
}
