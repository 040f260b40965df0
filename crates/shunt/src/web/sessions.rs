//! The one-time token of the printed link, and the sessions of browsers that presented it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use subtle::ConstantTimeEq as _;

/// Limit of the sessions; a new one ends the oldest.
const MAX_SESSIONS: usize = 16;

/// The current token and the sessions. Both are random, of 256 bits.
#[derive(Debug)]
pub struct Sessions(Mutex<Secrets>);

#[derive(Debug)]
struct Secrets {
    token: String,
    sessions: VecDeque<String>,
}

impl Sessions {
    pub fn new() -> Self {
        Sessions(Mutex::new(Secrets { token: random(), sessions: VecDeque::new() }))
    }

    /// The token of the next session.
    pub fn token(&self) -> String {
        self.lock().token.clone()
    }

    /// Exchanges the token for a session. The token is replaced, so it works once. None if it is another one.
    pub fn begin(&self, token: &str) -> Option<String> {
        let mut secrets = self.lock();
        if !is_equal(&secrets.token, token) {
            return None;
        }
        secrets.token = random();
        if secrets.sessions.len() >= MAX_SESSIONS {
            secrets.sessions.pop_front();
        }
        let session = random();
        secrets.sessions.push_back(session.clone());
        Some(session)
    }

    /// Reports whether this is a session.
    pub fn has(&self, session: &str) -> bool {
        self.lock().sessions.iter().any(|known| is_equal(known, session))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Secrets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns 256 random bits as hexadecimal digits.
pub fn random() -> String {
    rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares secrets in a time that does not depend on the position of the first difference.
fn is_equal(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once() {
        let sessions = Sessions::new();
        let token = sessions.token();
        assert!(sessions.begin(&token[1..]).is_none() && sessions.begin("").is_none());
        let session = sessions.begin(&token).unwrap();
        assert!(sessions.begin(&token).is_none());
        assert!(sessions.has(&session) && !sessions.has(&token) && !sessions.has(""));
        assert_ne!(sessions.token(), token);
    }

    #[test]
    fn sessions_are_limited() {
        let sessions = Sessions::new();
        let first = sessions.begin(&sessions.token()).unwrap();
        for _ in 0..MAX_SESSIONS {
            assert!(sessions.begin(&sessions.token()).is_some());
        }
        assert!(!sessions.has(&first));
    }
}
