package exchange

import (
	"io"
	"time"

	"github.com/spf13/pflag"

	"inferplan/formats/importer/llmruns"
	"inferplan/formats/usage"
	"inferplan/importers"
	"inferplan/profiler/llmrun"
)

// Flags are flags about the exchange between the GPUs of an instance, if its iterations are sums of the kernels
// of one GPU.
type Flags struct {
	gbps   float64
	step   float64 // microseconds
	config string
}

// Define defines the flags.
func (o *Flags) Define(f *pflag.FlagSet) {
	f.Float64Var(&o.gbps, "link-gbps", 0, "1e9 bytes a second from one GPU of an instance to the next: adds all-reduces to iterations that are sums of kernels")
	f.Float64Var(&o.step, "link-us", 0, "microseconds of latency from one GPU of an instance to the next")
	f.StringVar(&o.config, "model-config", "", "config.json of the model, for its layers and what crosses between GPUs for a token")
}

// Exchange returns the exchange that the flags describe, or nil if none was given. An exchange is how GPUs combine
// their results in every layer (all-reduce): the rate and latency of their links, and the sizes of the model's
// layers.
func (o *Flags) Exchange(f *pflag.FlagSet) (*llmrun.Exchange, error) {
	if !f.Changed("link-gbps") && !f.Changed("link-us") && o.config == "" {
		return nil, nil
	}
	if !(o.gbps >= 1e-3 && o.gbps < 1e6) || !(o.step >= 0 && o.step <= 1e6) || o.config == "" {
		return nil, usage.Errorf("--link-gbps %g --link-us %g --model-config %q: expected --link-gbps from .001 to 1e6, --link-us from 0 to 1e6, and a file: all-reduces take the three together", o.gbps, o.step, o.config)
	}
	x := &llmrun.Exchange{Links: llmruns.LinkSpecs{GBps: o.gbps, Latency: time.Duration(o.step * 1e3)}}
	err := importers.ReadFile(o.config, "the model's config", func(f io.Reader) (err error) { x.Layers, err = llmruns.ReadLayers(f, o.config); return err })
	return x, err
}
