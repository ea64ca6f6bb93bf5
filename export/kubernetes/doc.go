// Package kubernetes is the target of plan export that writes manifests of Kubernetes: a kustomize base with an overlay,
// an image recipe and a script that makes the secrets.
//
//	target.go      the flags, and the files of a folder
//	manifests.go   what the templates are filled with
//	kinds.go       the pods of a plan's devices
//	flags.go       values of flags that are KIND=VALUE, sizes, names
//	templates/     the files
//
// A copy of a plan is one pod of the server (plan serve) and, for each kind of device, pods of workers that join it by
// token. Pods of workers have numbers, and those of copy i join the server with the number i, so that a copy more is a
// server more and as many workers more as a copy has. The plan is a file that the server watches: another plan in the
// ConfigMap is switched to without a restart.
package kubernetes
