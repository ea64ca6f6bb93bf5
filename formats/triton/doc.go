// Package triton knows the model repositories of Triton Inference Server: their folders, the text of their
// configurations, and which devices a server on a machine has.
//
// The words of this package:
//
//   - Host: a machine with devices of a cluster. One server runs on it, on one repository.
//   - Repository: a folder with a folder for each model, which holds config.pbtxt and a folder for each version.
//
// The files:
//
//	config.go      the text of config.pbtxt
//	repository.go  repositories in a folder
//	hosts.go       the hosts of a cluster, and how devices are numbered on them
package triton
