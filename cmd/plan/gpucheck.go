package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"inferplan/bench/gpucheck"
)

// newGPUCheckCommand makes the verb that `make bench NAME=gpu` and gpu-check.sh start.
func newGPUCheckCommand(g *globalFlags) *cobra.Command {
	o := gpucheck.Options{}
	var onlyCheck string
	cmd := &cobra.Command{
		Use:    "gpu-check",
		Short:  "Try out everything that needs a GPU, step by step, and write what came out",
		Hidden: true, // it is started by gpu-check.sh
		Example: `  plan gpu-check --out results --limit 9m
  plan gpu-check --device cpu --out rehearsal --steps doctor,outputs`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := newPrinter(cmd, g)
			for _, step := range o.Steps {
				if err := checkWord("steps", step, gpucheck.Names()...); err != nil {
					return err
				}
			}
			endsWellOnInterrupt(cmd.Context())
			var err error
			if o.Self, err = os.Executable(); err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			for _, dir := range []*string{&o.Out, &o.Work, &o.Digits, &o.Mirror} {
				if *dir == "" {
					continue
				}
				if *dir, err = filepath.Abs(*dir); err != nil {
					return err
				}
			}
			o.Log = p.err
			if onlyCheck != "" {
				return gpucheck.RunOne(cmd.Context(), o, onlyCheck)
			}
			ok, err := gpucheck.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "results in %s and %s\n", filepath.Join(o.Out, "gpu-check.txt"), filepath.Join(o.Out, "gpu-check.json"))
			if !ok {
				return &exitError{code: exitGate, err: errors.New("not everything was done, or a figure is not what was promised")}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Device, "device", "cuda:0", "cuda:<n>, or cpu for a rehearsal")
	f.StringVar(&o.Out, "out", "gpu-check", "folder for results; what stands there is not done again")
	f.StringVar(&o.Work, "work", "gpu-check-work", "folder for models and other large files")
	f.StringVar(&o.Digits, "digits", "", "folder with the digits family and samples.csv.gz (default: trained on the spot in the source tree)")
	f.DurationVar(&o.Limit, "limit", 0, "time for this call: what does not fit is left for the next one")
	f.StringSliceVar(&o.Steps, "steps", nil, "only these steps")
	f.BoolVar(&o.Again, "again", false, "do again what is done")
	f.BoolVar(&o.Quick, "quick", false, "small sizes")
	f.StringVar(&o.Mirror, "mirror", "", "folder that gets a copy of the results again and again")
	f.StringVar(&onlyCheck, "one", "", "run one step in this process")
	_ = f.MarkHidden("one")
	completeFlag(cmd, "device", "cuda:0", "cpu")
	completeFlag(cmd, "steps", gpucheck.Names()...)
	return cmd
}
