// Package kubernetes reads what runs on a cluster of Kubernetes from its manifests, or from what kubectl returns: a plan
// that plan serve executes there, or servers of Triton or of language models, of which a plan is made.
//
// A container is known by its image or its command. Of manifests only the fields that say what runs are read: what else
// is in them has no part in a plan. Fields and defaults are those of the Kubernetes API v1.34 (pkg/apis/apps, core).
//
// The files, in the order of reading:
//
//	importer.go   the verb plan import kubernetes
//	yaml.go       values of a manifest, with their places
//	manifests.go  files to objects, and the objects that have pods
//	containers.go which model server a container runs, with its options
//	script.go     which command of a shell's script starts it
//	exported.go   plan serve and its workers: the plan, and whether its devices are all there
//	triton.go     pods of Triton: their models and devices
//	language.go   pods of vLLM, SGLang and llama.cpp: their models, limits and devices
//	devices.go    the kind of the devices of a pod, and which devices of the cluster they are
package kubernetes
