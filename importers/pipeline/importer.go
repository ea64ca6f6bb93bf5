package pipeline

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/formats"
	"inferplan/formats/document"
	"inferplan/formats/usage"
	"inferplan/importers"
)

// Importer describes the verb import pipeline. Its file is a JSON list of modules, each with the modules before
// it (pres) and after it (subs). They become one application in a new workload document, with the latency SLO and the
// rate (requests per second) of the flags. An SLO of 5x is five times the latency without queues.
func Importer() *importers.Importer {
	var name, slo string
	var rps float64
	return &importers.Importer{
		Usage:        "pipeline FILE --slo 400ms",
		Summary:      "A list of modules (JSON: name, id, pres, subs) into an application of a workload",
		Example:      `  plan import pipeline traffic.json --slo 400ms --rps 120 -o workload.json`,
		MinArguments: 1, MaxArguments: 1, DefaultOutput: "workload.json", Kind: formats.KindWorkload,
		DefineFlags: func(f *pflag.FlagSet) {
			f.StringVar(&name, "name", "", "name of the application (default: the file's, without its ending)")
			f.StringVar(&slo, "slo", "", "latency SLO of the whole, such as 400ms or 5x")
			f.Float64Var(&rps, "rps", 0, "rate to be carried")
		},
		Import: func(r *importers.Run) error {
			file := r.Args[0]
			var app formats.Application
			err := importers.ReadFile(file, "the list of modules", func(f io.Reader) (err error) { app, err = Read(f, file); return err })
			if err != nil {
				return err
			}
			app.Name, app.RPS = cmp.Or(name, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))), rps
			if slo != "" {
				if app.SLO, err = document.ParseSLO(slo); err != nil {
					return usage.Errorf("--slo %s: %w", slo, err)
				}
			}
			doc := Workload(app)
			if err := doc.Validate(); err != nil {
				return usage.Mark(fmt.Errorf("the application of %s: %w", file, err))
			}
			return r.SaveAndShow(doc, map[string]any{"application": app.Name, "modules": len(app.Modules)}, "%s: application %s of %d modules", r.Path, app.Name, len(app.Modules))
		},
	}
}
