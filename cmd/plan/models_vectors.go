package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/executor/steps"
)

func newVectorsCommand(g *globals) *cobra.Command {
	var model, out string
	cmd := &cobra.Command{
		Use:   "vectors PASSAGES.txt",
		Short: "Write passages with their vectors, for applications that find passages (JSON lines)",
		Long: `Write passages, one a line, with the vectors that a model makes of their words: the file that
modules with the step passages read. The model takes counts of words (the step text-words).`,
		Example: `  plan models write embedder
  plan models vectors passages.txt --model models/embedder.onnx -o models/passages.jsonl`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := newPrinter(cmd, g)
			if err := p.output("output", out, "table"); err != nil {
				return err
			}
			return p.vectors(cmd.Context(), args[0], model, out)
		},
	}
	cmd.Flags().StringVar(&model, "model", "models/embedder.onnx", "ONNX model that makes a vector of counts of words")
	cmd.Flags().StringVarP(&out, "output", "o", "models/passages.jsonl", "file to write")
	return cmd
}

// vectors writes the passages of a file with their vectors.
func (p *printer) vectors(ctx context.Context, passages, model, out string) (err error) {
	in, err := os.Open(passages)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("passages: %w", err))
	}
	defer in.Close()
	eng, err := ort.Open("")
	if err != nil {
		return fmt.Errorf("opening the engine: %w", err)
	}
	defer eng.Close()
	run, err := bindOne(ctx, eng, model)
	if err != nil {
		return withCode(exitUsage, err)
	}
	defer run.Close()
	if out == toStdout {
		_, err := steps.WriteVectors(ctx, run, in, p.out)
		return err
	}
	file, err := createPart(out)
	if err != nil {
		return writeError(err)
	}
	defer file.remove()
	n, err := steps.WriteVectors(ctx, run, in, file)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: found no passage, expected one a line", passages)
	}
	if err != nil {
		return withCode(exitUsage, errors.Join(err, file.Close()))
	}
	if err := file.complete(nil); err != nil {
		return writeError(err)
	}
	p.note("%d passages", n)
	return p.wrote([]string{out})
}

// bindOne loads a whole model on a CPU, for one sample at a time.
func bindOne(ctx context.Context, eng *ort.Engine, path string) (engine.Binding, error) {
	m, err := graph.Open(path, graph.Options{})
	if err != nil {
		return nil, err
	}
	chain, err := m.Chain(ctx, eng.Probe, graph.ChainOptions{})
	if err != nil {
		return nil, err
	}
	whole, err := chain.Whole().Slice(0, 1, graph.SliceOptions{})
	if err != nil {
		return nil, err
	}
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	block, err := eng.Load(ctx, whole, engine.CPUDevice(cpus[0]), engine.Options{})
	if err != nil {
		return nil, err
	}
	return block.Bind(engine.BindOptions{Batch: 1})
}
