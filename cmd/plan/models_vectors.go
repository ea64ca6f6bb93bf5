package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"inferplan/engine"
	"inferplan/engine/graph"
	"inferplan/engine/ort"
	"inferplan/executor/steps"
	"inferplan/formats/document"
	"inferplan/formats/usage"
)

// newVectorsCommand makes the verb models vectors.
func newVectorsCommand(g *globalFlags) *cobra.Command {
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
			if err := p.checkOutput("output", out, "table"); err != nil {
				return err
			}
			return p.writeVectors(cmd.Context(), args[0], model, out)
		},
	}
	cmd.Flags().StringVar(&model, "model", "models/embedder.onnx", "ONNX model that makes a vector of counts of words")
	cmd.Flags().StringVarP(&out, "output", "o", "models/passages.jsonl", "file to write")
	return cmd
}

// writeVectors writes the passages of a file with their vectors.
func (p *printer) writeVectors(ctx context.Context, passages, model, out string) (err error) {
	// Open the passages, the engine and the model.
	in, err := document.Open(passages)
	if err != nil {
		return withCode(exitUsage, fmt.Errorf("passages: %w", err))
	}
	defer in.Close()
	eng, err := ort.Open("")
	if err != nil {
		return fmt.Errorf("opening the engine: %w", err)
	}
	defer eng.Close()
	run, err := bindSingle(ctx, eng, model)
	if err != nil {
		return withCode(exitUsage, err)
	}
	defer run.Close()

	// Write to standard output, or to a part file that gets its name when it is complete.
	var to io.Writer = p.out
	var file *partFile
	if out != toStdout {
		if file, err = createPart(out); err != nil {
			return usage.MarkWriting(err)
		}
		defer file.remove()
		to = file
	}
	n, err := steps.WriteVectors(ctx, run, in, to)
	if err == nil && n == 0 {
		err = errors.New("found no passage, expected one a line")
	}
	_, unwritten := errors.AsType[*steps.WriteError](err)
	switch {
	case unwritten:
		return usage.MarkWriting(err)
	case ctx.Err() != nil:
		return err
	case err != nil:
		return withCode(exitUsage, fmt.Errorf("%s: %w", passages, err))
	case file == nil:
		return nil
	}
	if err := file.complete(nil); err != nil {
		return usage.MarkWriting(err)
	}
	p.PrintNote("%d passages", n)
	return p.printWritten([]string{out})
}

// bindSingle loads a whole model on a CPU and binds it for one sample at a time. Closing the result unloads the
// model.
func bindSingle(ctx context.Context, eng *ort.Engine, path string) (engine.Binding, error) {
	m, err := graph.Open(path, graph.Options{})
	if err != nil {
		return nil, err
	}
	chain, err := m.Chain(ctx, eng.Probe, graph.ChainOptions{})
	if err != nil {
		return nil, err
	}
	uncut, err := chain.WholeModel().Slice(0, 1, graph.SliceOptions{})
	if err != nil {
		return nil, err
	}
	cpus, err := engine.CPUs()
	if err != nil {
		return nil, err
	}
	block, err := eng.Load(ctx, uncut, engine.CPUDevice(cpus[0]), engine.Options{})
	if err != nil {
		return nil, err
	}
	run, err := block.Bind(engine.BindOptions{Batch: 1})
	if err != nil {
		return nil, errors.Join(err, block.Close())
	}
	return &oneSample{run, block}, nil
}

// oneSample is a binding that also closes its block.
type oneSample struct {
	engine.Binding
	block engine.Block
}

// Close frees the binding and the block.
func (s *oneSample) Close() error { return errors.Join(s.Binding.Close(), s.block.Close()) }
