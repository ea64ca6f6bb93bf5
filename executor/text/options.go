package text

import (
	"time"

	"inferplan/engine/llm"
	"inferplan/executor/turn"
)

// Options say where the servers of the plan's instances of language models are.
type Options struct {
	Servers []InstanceServer
	// Adapters are models of the plan that a server serves as adapters of another one.
	Adapters []ModelAdapter
	// Silence is the time without an answer after which a server is taken to be gone; 0 stands for 5 s.
	Silence time.Duration
	// Agents are those of other processes (ServeAgent), in place of Servers; nil: none.
	Agents *Agents
}

// InstanceServer says where a server of an instance is.
type InstanceServer struct {
	Instance int    // of the plan, in its order
	Model    string // that it serves; empty: all of the instance's models
	URL      string
	Key      string // bearer token; empty: none
}

// ModelAdapter says that a model of the plan is a LoRA adapter of another one, which the
// same server has.
type ModelAdapter struct {
	Model, Base string
	// Path is that of its files as the server sees them. Empty: the server was started
	// with the adapter, under the model's name.
	Path string
}

// Of is the adapter as a client of the server names it.
func (a *ModelAdapter) Of() llm.Adapter { return llm.Adapter{Name: a.Model, Path: a.Path} }

// SetDefaults gives options that are zero their defaults.
func (o *Options) SetDefaults() { turn.SetDefault(&o.Silence, 5*time.Second) }
