package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"inferplan/engine/graph"
	"inferplan/formats/importer/literal"
	"inferplan/profiler"
)

// inputOptions are the flags about the inputs of models as they were exported.
type inputOptions struct {
	shapes, values []string
}

func (o *inputOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.shapes, "shape", nil, "sizes of an input with free dimensions, batch first: [MODEL:]INPUT=1x3x320x320, or the sizes alone for models of one input")
	f.StringArrayVar(&o.values, "input", nil, "value of an input: [MODEL:]INPUT=VALUE, a number, true, false, a JSON array, or a file (.npy, .json). One without dimensions becomes a constant of the model; others are measured with it")
}

// target splits MODEL:INPUT=VALUE. The model is named only where one of that name
// is measured: names of inputs have colons, too.
func target(text string, models []string) (model, input, value string) {
	input, value, ok := strings.Cut(text, "=")
	if !ok {
		input, value = "", text
	}
	if m, rest, ok := strings.Cut(input, ":"); ok && slices.Contains(models, m) {
		return m, rest, value
	}
	return "", input, value
}

// fill puts what the flags say into the profiler's options. The models are those
// of its paths.
func (o *inputOptions) fill(opt *profiler.Options) error {
	var models []string
	for _, path := range opt.Models {
		models = append(models, profiler.ModelName(path))
	}
	opt.Dims, opt.Values = map[string]map[string][]int64{}, map[string]map[string]graph.Literal{}
	for _, text := range o.shapes {
		model, input, value := target(text, models)
		dims, err := parseShape(value)
		if err != nil {
			return usageErrorf("--shape %s: %w", text, err)
		}
		if opt.Dims[model] == nil {
			opt.Dims[model] = map[string][]int64{}
		}
		if _, twice := opt.Dims[model][input]; twice {
			return usageErrorf("--shape %s: the input has a shape already", text)
		}
		opt.Dims[model][input] = dims
	}
	for _, text := range o.values {
		model, input, value := target(text, models)
		if input == "" {
			return usageErrorf("--input %s: expected INPUT=VALUE", text)
		}
		v, err := literal.Parse(value)
		if err != nil {
			return usageErrorf("--input %s: %w", text, err)
		}
		if opt.Values[model] == nil {
			opt.Values[model] = map[string]graph.Literal{}
		}
		if _, twice := opt.Values[model][input]; twice {
			return usageErrorf("--input %s: the input has a value already", text)
		}
		opt.Values[model][input] = graph.Literal(v)
	}
	return nil
}

// parseShape reads sizes such as 1x3x320x320.
func parseShape(text string) ([]int64, error) {
	var dims []int64
	for part := range strings.SplitSeq(strings.ToLower(text), "x") {
		d, err := strconv.ParseInt(strings.TrimSpace(part), 10, 64)
		if err != nil || d < 1 || d > 1<<31 {
			return nil, usageErrorf("found the size %q, expected whole numbers with x between them, batch first, such as 1x3x320x320", part)
		}
		dims = append(dims, d)
	}
	return dims, nil
}
