// Package slim makes objects small before informers hold them. A cluster has
// thousands of claims and tens of thousands of snapshots, and most of what each
// weighs is alike in all: the keys of labels, names of classes, drivers and
// namespaces, sizes. What is alike is held once, and what nobody reads is let go.
//
// So what an informer holds is only to be read, and to be patched by what differs
// from it. An Update would take away what was let go, and a change in place would
// be one of many objects; both are wrong for any object of an informer's.
package slim
