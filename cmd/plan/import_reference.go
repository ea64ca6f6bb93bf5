package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/importer/reference"
	"inferplan/planner/pool"
)

type referenceImport struct{ name, algorithm, profile string }

func importReference() importer {
	o := &referenceImport{}
	return importer{
		use:   "reference FILE --case C --algorithm A [--profile F]",
		short: "A plan that the PPipe artifact recorded into a plan of ours",
		long: `A plan that the PPipe artifact recorded into a plan of ours.

Pipelines, replicas and rates stay as recorded; latencies and cuts come from the profile,
and replicas are placed on devices as in our own plans. A recorded figure that the profile
does not give again (1 us, 1e-5) is an error that names it.`,
		example: `  plan import reference reference_plans.json --case maf19/G3/HC1/w0.3-0.33-0.37 --algorithm PPipe --profile profile.json -o plan.json`,
		args:    cobra.ExactArgs(1), out: "plan.json", kind: formats.KindPlan, required: []string{"case"},
		words: map[string][]string{"algorithm": {"PPipe", "NP", "DART-r"}},
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&o.name, "case", "", "case of the file (required)")
			f.StringVar(&o.algorithm, "algorithm", "PPipe", "NP, DART-r or PPipe")
			f.StringVar(&o.profile, "profile", "", "profile of the case's models (default ./profile.json or .yaml)")
		},
		run: o.run,
	}
}

func (o *referenceImport) run(r *importRun) error {
	file := r.args[0]
	var plans []reference.Plan
	if err := readFile(file, "recorded plans", func(f *os.File) (err error) { plans, err = reference.Read(f, file); return err }); err != nil {
		return err
	}
	ref, err := reference.Find(plans, file, o.name, o.algorithm)
	if err != nil {
		return withCode(exitUsage, err)
	}
	path, err := documentFile("profile", o.profile)
	if err != nil {
		return err
	}
	if path == "" {
		return usageErrorf("no profile here (profile.json); type: plan import blocks --latency F --cuts F")
	}
	profile, err := formats.ReadProfile(path)
	if err != nil {
		return withCode(exitUsage, err)
	}
	var files []formats.Input
	for _, in := range [][2]string{{"profile", path}, {"reference", file}} {
		digest, err := input(in[0], in[1], r.path)
		if err != nil {
			return err
		}
		files = append(files, digest)
	}
	plan, err := pool.FromReference(ref, profile, files)
	if err != nil {
		return withCode(exitUsage, err)
	}
	if err := r.save(r.path, plan, true); err != nil {
		return err
	}
	r.assumed(plan.Assumptions)
	r.warned(plan.Warnings)
	if r.json {
		return r.show(map[string]any{"models": len(plan.Deployment), "objective": plan.Objective}, "")
	}
	return printPlan(r.printer, plan, r.path)
}
