// Package pipeline reads pipelines as PARD (EuroSys '26, §5) writes them: a JSON
// list of modules, each with a name, an id, the ids before it (pres) and the ids
// behind it (subs). Out comes an application of a workload.
package pipeline
