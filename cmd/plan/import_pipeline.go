package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"inferplan/formats"
	"inferplan/formats/importer/flowgraph"
)

type importPipelineOptions struct {
	file, name, slo, out string
	rps                  float64
}

func newImportPipelineCommand(g *globals) *cobra.Command {
	o := &importPipelineOptions{}
	cmd := &cobra.Command{
		Use:     "pipeline FILE --slo 400ms",
		Short:   "A list of modules (JSON: name, id, pres, subs) into an application of a workload",
		Example: `  plan import pipeline traffic.json --slo 400ms --rps 120 -o workload.json`,
		Args:    cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "name of the application (default: the file's, without its ending)")
	f.StringVar(&o.slo, "slo", "", "latency SLO of the whole, such as 400ms or 5x")
	f.Float64Var(&o.rps, "rps", 0, "rate to be carried")
	return importing(g, cmd, &o.out, "workload.json", formats.KindWorkload, func(p *printer, args []string) error {
		o.file = args[0]
		return runImportPipeline(p, o)
	})
}

func runImportPipeline(p *printer, o *importPipelineOptions) error {
	var app formats.Application
	err := readFile(o.file, "the list of modules", func(f *os.File) (err error) { app, err = flowgraph.Read(f, o.file); return err })
	if err != nil {
		return err
	}
	app.Name, app.RPS = o.name, o.rps
	if app.Name == "" {
		app.Name = strings.TrimSuffix(filepath.Base(o.file), filepath.Ext(o.file))
	}
	if o.slo != "" {
		if app.SLO, err = formats.ParseSLO(o.slo); err != nil {
			return usageErrorf("--slo %s: %w", o.slo, err)
		}
	}
	doc := flowgraph.Workload(app)
	if err := doc.Validate(); err != nil {
		return withCode(exitUsage, fmt.Errorf("the application of %s: %w", o.file, err))
	}
	if err := p.save(o.out, doc, true); err != nil {
		return err
	}
	if p.json {
		return p.document(map[string]any{"output": o.out, "application": app.Name, "modules": len(app.Modules)})
	}
	fmt.Fprintf(p.out, "%s: application %s of %d modules\n", o.out, app.Name, len(app.Modules))
	return nil
}
