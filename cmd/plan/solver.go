package main

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"inferplan/solver/highs"
	"inferplan/solver/process"
)

// solverCommand is the verb of the process that solve and check start to solve their models.
const solverCommand = "solver"

func newSolverCommand() *cobra.Command {
	return &cobra.Command{Use: solverCommand, Short: "The process in which models are solved, started by solve and check", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return process.Serve(highs.Solver{}, os.Stdin, os.NewFile(3, "stops"), cmd.OutOrStdout())
		}}
}

// newSolver returns a solver in a separate process. The caller has to close it.
func newSolver() (*process.Solver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &process.Solver{Name: highs.Version(), Command: func() *exec.Cmd {
		return &exec.Cmd{Path: self, Args: []string{"plan", solverCommand},
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true}} // Ctrl-C at a terminal is then only for this process
	}}, nil
}
