package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"inferplan/formats/document"
)

// globalFlags are the flags that every verb has.
type globalFlags struct {
	config string
	json   bool
	quiet  bool

	maxDocument string
	typedFlags  typedFlags
	unknown     []string // variables of the environment that nothing reads
	stdoutFlag  string   // the flag whose file is written to standard output
	version     bool
	// typedOldNames says what flags are called now that were given by an old name.
	typedOldNames []string
}

// setDocumentLimit sets the largest size of documents.
func (g *globalFlags) setDocumentLimit() error {
	maxSize, err := document.ParseBytes(g.maxDocument)
	if err != nil {
		return usageErrorf("--max-document: %w", err)
	}
	if maxSize < 1 || maxSize > maxMaxDocument {
		return usageErrorf("--max-document: found %s, expected 1 byte to %s", maxSize, document.Bytes(maxMaxDocument))
	}
	document.SetMaxDocument(int64(maxSize))
	return nil
}

// maxMaxDocument is the largest value of --max-document.
const maxMaxDocument = 1 << 30

// executeCommand runs one command line and returns its exit code. Errors are printed to stderr.
func executeCommand(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	out := &checkedWriter{w: stdout}
	root.SetOut(out)
	root.SetErr(stderr)
	addCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	if errors.Is(err, errListed) {
		err = nil
	}
	if err == nil && out.err != nil {
		err = withCode(exitEnvironment, fmt.Errorf("writing to stdout: %w", out.err))
	}
	if err == nil {
		return exitDone
	}
	// Errors of cobra itself (an unknown verb or flag, a wrong number of arguments, a missing required flag) occur
	// before any RunE, and are bad usage.
	if _, ours := errors.AsType[*exitError](err); !ours && root.Annotations[runningAnnotation] == "" {
		err = usageErrorf("%w\n  usage: %s%s", usageError(cmd, err), cmd.UseLine(), spellingHint(cmd, err))
	}
	err = withRecognizedFile(cmd, err)
	if msg := err.Error(); msg != "" {
		fmt.Fprintln(stderr, "plan: "+msg)
	}
	return exitCode(err)
}

// checkedWriter keeps the first error of writing to stdout. Tables and lines are printed without checks, and a
// full disk must not end with exit code 0.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

// runningAnnotation is set on the root command as soon as a verb runs.
const runningAnnotation = "running"

// spellingHint returns a hint at the verb or flag that was probably meant.
func spellingHint(cmd *cobra.Command, err error) string {
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		visit := func(f *pflag.Flag) { names = append(names, f.Name) }
		cmd.Flags().VisitAll(visit)
		cmd.InheritedFlags().VisitAll(visit)
		if similar := document.Nearest(name, names); similar != "" {
			return "\n  hint: did you mean --" + similar + "?"
		}
		return "\n  hint: " + cmd.CommandPath() + " --help lists the flags"
	}
	if rest, ok := strings.CutPrefix(err.Error(), "unknown command \""); ok && cmd.HasSubCommands() {
		name, _, _ := strings.Cut(rest, "\"")
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		if similar := document.Nearest(name, names); similar != "" {
			return "\n  hint: did you mean " + cmd.CommandPath() + " " + similar + "?"
		}
		return "\n  hint: " + cmd.CommandPath() + " --help lists the verbs"
	}
	return ""
}

// Verbs are listed in the order of their use. The setting is global for the process.
func init() { cobra.EnableCommandSorting = false }

// newRootCommand makes the command plan with all its verbs and the flags that all of them have.
func newRootCommand() *cobra.Command {
	g := &globalFlags{}
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
		SilenceUsage: true,
		// spellingHint gives hints of its own, in one line.
		DisableSuggestions: true,
		SilenceErrors:      true,
		Annotations:        map[string]string{},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			g.noteTyped(cmd)
			if err := loadConfig(cmd, g); err != nil {
				return err
			}
			p := newPrinter(cmd, g)
			for _, line := range g.unknown {
				p.PrintNote("warning: %s", line)
			}
			for _, line := range slices.Compact(g.typedOldNames) {
				p.PrintNote("note: %s", line)
			}
			return firstError(g.checkStandardFiles(cmd, args), g.setDocumentLimit())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if g.version {
				return printVersion(newPrinter(cmd, g))
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&g.version, "version", false, "print the version, as plan version does")
	pf := root.PersistentFlags()
	pf.StringVar(&g.config, "config", "", "configuration file (default ./inferplan.yaml if it exists)")
	pf.BoolVar(&g.json, "json", false, "print one JSON document instead of tables")
	pf.StringVar(&g.maxDocument, "max-document", "64MiB", "largest document that is read")
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
	add("main", newProfileCommand(g), newSolveCommand(g), newSimulateCommand(g), newServeCommand(g), newWorkerCommand(g), newAgentCommand(g), newLoadCommand(g))
	add("gate", newCheckCommand(g), newDiffCommand(g), newExplainCommand(g), newReportCommand(g))
	add("aid", newReplayCommand(g), newInitCommand(g), newImportCommand(g), newExportCommand(g), newSchemaCommand(), newModelsCommand(g), newDoctorCommand(g), newRescueCommand(g), newVersionCommand(g))
	root.AddCommand(newShareCommand(), newSolverCommand())
	root.SetHelpCommand(newHelpCommand(root))
	acceptPercent(root)
	g.acceptOldNames(root)
	useFlagSections(root)
	markRunning(root, root)
	return root
}

// addCompletion adds cobra's verb for completion. It refuses unknown shells, and writes to the root's output.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil { // impossible unless this program is wrong
		panic(err)
	}
	c.Args, c.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
	markRunning(root, c)
}

// newHelpCommand makes cobra's help command, except that an unknown verb is bad usage.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [verb]",
		Short: "Help about any verb",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if c, _, err := root.Find(args); err == nil {
				for _, sub := range c.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], c.CommandPath())
			}
			if err != nil {
				return usageErrorf("%w%s", err, spellingHint(c, err))
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

// markRunning makes every verb record that cobra has accepted the command line.
func markRunning(root, cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			root.Annotations[runningAnnotation] = "yes"
			return run(c, args)
		}
	}
	for _, c := range cmd.Commands() {
		markRunning(root, c)
	}
}

// noArguments returns an error if there are arguments. cobra.NoArgs would call them unknown commands.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("found the argument %q, expected flags alone", args[0])
	}
	return nil
}

// completeFlag lets the shell complete a flag's values.
func completeFlag(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil { // no such flag, or a second completion: this program is wrong
		panic(err)
	}
}
