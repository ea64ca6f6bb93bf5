package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// globals are the flags that every verb has.
type globals struct {
	config string
	json   bool
	quiet  bool
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(stderr, "plan: "+msg)
	}
	// What cobra itself refuses (unknown verb, flag or argument) never reached
	// a RunE, and is bad usage.
	var parse *parseError
	if errors.As(err, &parse) || !reachedRun(root) {
		return exitUsage
	}
	return exitCode(err)
}

// parseError is a flag that cobra could not parse.
type parseError struct{ err error }

func (e *parseError) Error() string { return e.err.Error() }
func (e *parseError) Unwrap() error { return e.err }

const reached = "reached"

func reachedRun(root *cobra.Command) bool { return root.Annotations[reached] != "" }

func newRootCommand() *cobra.Command {
	g := &globals{}
	root := &cobra.Command{
		Use:   "plan",
		Short: "Plan, simulate and serve ML inference on the devices you really have",
		Long: `plan decides how to serve machine-learning models on the devices you really have.

  plan profile            what every block of every model costs on this machine
  plan solve --slo 200ms  the best deployment, with a proven bound
  plan simulate plan.json what it promises under real traffic, in virtual time
  plan serve plan.json    the deployment, running
  plan check              whether it still holds: a gate for CI

Flags may also be set by INFERPLAN_<FLAG> in the environment or in inferplan.yaml
(a flag's name as key, or under the verb's name). A flag wins over the environment,
the environment over the file.

Exit codes: 0 done; 1 a gate failed or diff found differences; 2 bad usage or input;
3 infeasible; 4 interrupted or a required gap missed, best so far written;
5 environment or internal failure.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if err := loadConfig(cmd, g); err != nil {
				return err
			}
			cmd.Root().Annotations[reached] = "yes"
			return nil
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &parseError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	pf := root.PersistentFlags()
	pf.StringVar(&g.config, "config", "", "configuration file (default ./inferplan.yaml if it exists)")
	pf.BoolVar(&g.json, "json", false, "print one JSON document instead of tables")
	pf.BoolVarP(&g.quiet, "quiet", "q", false, "no notes and no progress on stderr")
	root.AddGroup(
		&cobra.Group{ID: "main", Title: "The main line:"},
		&cobra.Group{ID: "gate", Title: "Plans over time:"},
		&cobra.Group{ID: "aid", Title: "Aids:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("main", newProfileCommand(g), newSolveCommand(g), newSimulateCommand(g), newServeCommand(g), newWorkerCommand(g), newLoadCommand(g))
	add("gate", newCheckCommand(g), newDiffCommand(g), newExplainCommand(g), newReportCommand(g))
	add("aid", newInitCommand(g), newImportCommand(g), newSchemaCommand(g), newDoctorCommand(g), newVersionCommand(g))
	root.AddCommand(newShareCommand(), newModelsCommand(g), newGPUCheckCommand(g))
	return root
}
