//! A directory tree with everything that a backup must preserve.

use std::path::Path;

use shunt_test_support::cmd::sh;

/// Creates the tree: links of both kinds, a hole, a pipe, a device, owners, modes, times, attributes and ACLs.
///
/// # Panics
/// If it cannot be created; it needs root, setfacl and setfattr.
#[track_caller]
pub fn tree(within: &Path, name: &str) {
    sh(
        within,
        &format!(
            "mkdir -p {name}/a/b {name}/empty; cd {name}
             echo one > a/one; ln a/one a/b/hard; ln -s ../one a/b/soft; ln -s nowhere dangling
             mkfifo pipe; mknod dev c 259 70000; touch -d '2001-02-03 04:05:06.789012345' a/one
             truncate -s 3M sparse; printf end >> sparse; head -c 300000 /dev/urandom > random
             chmod 6750 random; chown 1001:1002 random; chmod 1777 empty
             setfattr -n user.note -v hello a/one; setfacl -m u:1003:r a/one; setfacl -d -m g:1004:rwx a/b
             for n in $(seq 200); do echo $n > a/b/file-$n; done; touch -d '1999-09-09 09:09:09' a/b a"
        ),
    )
    .ok();
}
