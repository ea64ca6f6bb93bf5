package main

import (
	"os"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/importer/reference"
	"inferplan/planner/pool"
)

type importReferenceOptions struct {
	file, name, algorithm string
	profile, out          string
}

func newImportReferenceCommand(g *globals) *cobra.Command {
	o := &importReferenceOptions{}
	cmd := &cobra.Command{
		Use:   "reference FILE --case C --algorithm A [--profile F]",
		Short: "A plan that the PPipe artifact recorded into a plan of ours",
		Long: `A plan that the PPipe artifact recorded into a plan of ours.

Pipelines, replicas and rates stay as recorded; latencies and cuts come from the profile,
and replicas are placed on devices as in our own plans. A recorded figure that the profile
does not give again (1 us, 1e-5) is an error that names it.`,
		Example: `  plan import reference reference_plans.json --case maf19/G3/HC1/w0.3-0.33-0.37 --algorithm PPipe --profile profile.json -o plan.json`,
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "case", "", "case of the file (required)")
	f.StringVar(&o.algorithm, "algorithm", "PPipe", "NP, DART-r or PPipe")
	f.StringVar(&o.profile, "profile", "", "profile of the case's models (default ./profile.json or .yaml)")
	_ = cmd.MarkFlagRequired("case")
	complete(cmd, "algorithm", "PPipe", "NP", "DART-r")
	return importing(g, cmd, &o.out, "plan.json", formats.KindPlan, func(p *printer, args []string) error {
		o.file = args[0]
		return runImportReference(p, o)
	})
}

func runImportReference(p *printer, o *importReferenceOptions) error {
	var plans []reference.Plan
	if err := readFile(o.file, "recorded plans", func(f *os.File) (err error) { plans, err = reference.Read(f, o.file); return err }); err != nil {
		return err
	}
	ref, err := reference.Find(plans, o.file, o.name, o.algorithm)
	if err != nil {
		return withCode(exitUsage, err)
	}
	path, err := document("profile", o.profile)
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
	for _, in := range [][2]string{{"profile", path}, {"reference", o.file}} {
		file, err := input(in[0], in[1], o.out)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	plan, err := pool.FromReference(ref, profile, files)
	if err != nil {
		return withCode(exitUsage, err)
	}
	if err := p.save(o.out, plan, true); err != nil {
		return err
	}
	p.assumed(plan.Assumptions)
	p.warned(plan.Warnings)
	if p.json {
		return p.document(map[string]any{"output": o.out, "models": len(plan.Deployment), "objective": plan.Objective})
	}
	return printPlan(p, plan, o.out)
}
