// Package running makes plans of deployments that run and were not planned here: a model server's repository, or the
// manifests of a cluster, as an importer read them. The placement stays as it is. Times come from the profile, SLOs
// and weights from the workload, and rates are what the devices carry.
//
// The words of this package:
//
//   - Observed: what an importer read, in the form of a plan's deployment with places and batch sizes alone.
//
// The files, in the order of reading:
//
//	outcome.go    observed pipelines to the outcome of a search
//	templates.go  the times of an observed pipeline, at the largest batch that keeps the SLO
//	rates.go      what the pipelines carry together, and the models that may wait too long for others on devices where stages take turns
package running
