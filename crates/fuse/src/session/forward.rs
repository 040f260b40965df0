//! Forwarding of operations to another file system, for layers such as a policy, a cache or a log.
//!
//! A layer names every operation that it forwards. An operation that it does not mention keeps the default of
//! [`FileSystem`](crate::FileSystem), so an operation that is added later never passes a layer that does not know it.

/// Implements operations of a [`FileSystem`](crate::FileSystem) by calling the same operations of another one.
///
/// `|layer| layer.inner => flush, fsync` passes the operations on unchanged. `layer` stands for `&self`.
///
/// `|layer, request, node| let PATTERN = EXPRESSION; layer.inner => flush, fsync` evaluates the expression first, where `node` is
/// the first node of the operation (the directory, if it works on a name). An expression that binds `node` again replaces it, one
/// that fails with `?` ends the operation, and one that binds a guard keeps it until the inner operation has ended.
///
/// ```
/// use shunt_fuse::{Errno, FileSystem, NodeId, Request};
///
/// /// A file system without links and extended attributes, whose node ids are those of `inner` plus `OFFSET`.
/// struct Shifted<F> {
///     inner: F,
/// }
///
/// const OFFSET: u64 = 1000;
///
/// impl<F: FileSystem> Shifted<F> {
///     fn inner_node(&self, node: NodeId) -> Result<NodeId, Errno> {
///         node.0.checked_sub(OFFSET).map(NodeId).ok_or(Errno::STALE)
///     }
/// }
///
/// impl<F: FileSystem> FileSystem for Shifted<F> {
///     shunt_fuse::forward! { |layer| layer.inner => syncfs }
///     shunt_fuse::forward! {
///         |layer, request, node| let node = layer.inner_node(node)?;
///         layer.inner => getattr, open, read, release, opendir, readdir, releasedir
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    (|$layer:ident| $inner:expr => $($operation:ident),+ $(,)?) => {
        $($crate::forward! { @ $operation { [$layer, request, node] [] [$inner] } })+
    };
    (
        |$layer:ident, $request:ident, $node:ident| let $bound:pat = $value:expr;
        $inner:expr => $($operation:ident),+ $(,)?
    ) => {
        $($crate::forward! { @ $operation { [$layer, $request, $node] [$bound, $value] [$inner] } })+
    };

    // The arguments of each operation after the request and the first node.
    (@ lookup $x:tt) => { $crate::forward! { @method lookup(name: $crate::Name<'_>) -> $crate::Entry; $x } };
    (@ getattr $x:tt) => {
        $crate::forward! { @method
            getattr(handle: Option<$crate::FileHandle>) -> ($crate::Attributes, $crate::Expiry); $x
        }
    };
    (@ statx $x:tt) => {
        $crate::forward! { @method
            statx(handle: Option<$crate::FileHandle>, mask: u32) -> $crate::StatxReply; $x
        }
    };
    (@ setattr $x:tt) => {
        $crate::forward! { @method
            setattr(set: &$crate::SetAttributes) -> ($crate::Attributes, $crate::Expiry); $x
        }
    };
    (@ readlink $x:tt) => { $crate::forward! { @method readlink() -> Vec<u8>; $x } };
    (@ symlink $x:tt) => {
        $crate::forward! { @method
            symlink(name: $crate::Name<'_>, target: &::std::ffi::CStr) -> $crate::Entry; $x
        }
    };
    (@ mknod $x:tt) => {
        $crate::forward! { @method mknod(name: $crate::Name<'_>, new: $crate::NewNode) -> $crate::Entry; $x }
    };
    (@ mkdir $x:tt) => {
        $crate::forward! { @method mkdir(name: $crate::Name<'_>, new: $crate::NewNode) -> $crate::Entry; $x }
    };
    (@ unlink $x:tt) => { $crate::forward! { @method unlink(name: $crate::Name<'_>) -> (); $x } };
    (@ rmdir $x:tt) => { $crate::forward! { @method rmdir(name: $crate::Name<'_>) -> (); $x } };
    (@ rename $x:tt) => {
        $crate::forward! { @method
            rename(
                name: $crate::Name<'_>,
                new_parent: $crate::NodeId,
                new_name: $crate::Name<'_>,
                flags: $crate::RenameFlags
            ) -> (); $x
        }
    };
    (@ link $x:tt) => {
        $crate::forward! { @method
            link(new_parent: $crate::NodeId, new_name: $crate::Name<'_>) -> $crate::Entry; $x
        }
    };
    (@ open $x:tt) => { $crate::forward! { @method open(args: $crate::OpenArgs) -> $crate::Opened; $x } };
    (@ create $x:tt) => {
        $crate::forward! { @method
            create(name: $crate::Name<'_>, args: $crate::CreateArgs) -> $crate::Created; $x
        }
    };
    (@ tmpfile $x:tt) => { $crate::forward! { @method tmpfile(args: $crate::CreateArgs) -> $crate::Created; $x } };
    (@ read $x:tt) => { $crate::forward! { @method read(args: $crate::ReadArgs) -> $crate::Data<'_>; $x } };
    (@ write $x:tt) => {
        $crate::forward! { @method write(args: $crate::WriteArgs, data: $crate::WriteData<'_>) -> usize; $x }
    };
    (@ flush $x:tt) => {
        $crate::forward! { @method flush(handle: $crate::FileHandle, owner: $crate::LockOwner) -> (); $x }
    };
    (@ release $x:tt) => { $crate::forward! { @method release(args: $crate::ReleaseArgs) -> (); $x } };
    (@ fsync $x:tt) => {
        $crate::forward! { @method fsync(handle: $crate::FileHandle, data_only: bool) -> (); $x }
    };
    (@ opendir $x:tt) => { $crate::forward! { @method opendir(args: $crate::OpenArgs) -> $crate::Opened; $x } };
    (@ readdir $x:tt) => {
        $crate::forward! { @method
            readdir(handle: $crate::FileHandle, offset: u64, out: &mut $crate::DirectoryBuffer) -> (); $x
        }
    };
    (@ readdirplus $x:tt) => {
        $crate::forward! { @method
            readdirplus(handle: $crate::FileHandle, offset: u64, out: &mut $crate::DirectoryPlusBuffer) -> (); $x
        }
    };
    (@ releasedir $x:tt) => { $crate::forward! { @method releasedir(args: $crate::ReleaseArgs) -> (); $x } };
    (@ fsyncdir $x:tt) => {
        $crate::forward! { @method fsyncdir(handle: $crate::FileHandle, data_only: bool) -> (); $x }
    };
    (@ statfs $x:tt) => { $crate::forward! { @method statfs() -> $crate::StatFs; $x } };
    (@ setxattr $x:tt) => {
        $crate::forward! { @method
            setxattr(name: &::std::ffi::CStr, value: &[u8], set: $crate::XattrSet) -> (); $x
        }
    };
    (@ getxattr $x:tt) => {
        $crate::forward! { @method getxattr(name: &::std::ffi::CStr, size: u32) -> $crate::XattrReply; $x }
    };
    (@ listxattr $x:tt) => { $crate::forward! { @method listxattr(size: u32) -> $crate::XattrReply; $x } };
    (@ removexattr $x:tt) => { $crate::forward! { @method removexattr(name: &::std::ffi::CStr) -> (); $x } };
    (@ access $x:tt) => { $crate::forward! { @method access(mask: u32) -> (); $x } };
    (@ getlk $x:tt) => { $crate::forward! { @method getlk(args: $crate::LockArgs) -> $crate::LockRange; $x } };
    (@ setlk $x:tt) => { $crate::forward! { @method setlk(args: $crate::LockArgs) -> (); $x } };
    (@ bmap $x:tt) => { $crate::forward! { @method bmap(block: u64, block_size: u32) -> u64; $x } };
    (@ ioctl $x:tt) => {
        $crate::forward! { @method ioctl(args: $crate::IoctlArgs<'_>) -> $crate::IoctlReply; $x }
    };
    (@ poll $x:tt) => { $crate::forward! { @method poll(args: $crate::PollArgs) -> u32; $x } };
    (@ fallocate $x:tt) => { $crate::forward! { @method fallocate(args: $crate::Fallocate) -> (); $x } };
    (@ lseek $x:tt) => {
        $crate::forward! { @method
            lseek(handle: $crate::FileHandle, offset: u64, whence: $crate::Whence) -> u64; $x
        }
    };
    (@ copy_file_range $x:tt) => {
        $crate::forward! { @method
            copy_file_range(node_out: $crate::NodeId, range: $crate::CopyRange) -> usize; $x
        }
    };
    // SYNCFS concerns no node.
    (@ syncfs { [$layer:ident, $request:ident, $node:ident] [] [$inner:expr] }) => {
        async fn syncfs(&self, $request: &$crate::Request<'_>) -> Result<(), $crate::Errno> {
            let $layer = self;
            $inner.syncfs($request).await
        }
    };

    (
        @method $operation:ident($($argument:ident: $type:ty),*) -> $reply:ty;
        { [$layer:ident, $request:ident, $node:ident] [$($bound:pat, $value:expr)?] [$inner:expr] }
    ) => {
        async fn $operation(
            &self,
            $request: &$crate::Request<'_>,
            $node: $crate::NodeId,
            $($argument: $type),*
        ) -> Result<$reply, $crate::Errno> {
            let $layer = self;
            $(let $bound = $value;)?
            $inner.$operation($request, $node, $($argument),*).await
        }
    };
}
