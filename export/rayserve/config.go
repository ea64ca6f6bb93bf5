package rayserve

// The parts of a configuration of Ray Serve that are written: ServeDeploySchema, ServeApplicationSchema,
// DeploymentSchema and RayActorOptionsSchema of python/ray/serve/schema.py in Ray's main branch of late 2025.
type (
	config struct {
		Applications []application `yaml:"applications"`
	}
	application struct {
		Name        string       `yaml:"name"`
		RoutePrefix string       `yaml:"route_prefix"`
		ImportPath  string       `yaml:"import_path"`
		Args        arguments    `yaml:"args"`
		Deployments []deployment `yaml:"deployments"`
	}
	deployment struct {
		Name               string       `yaml:"name"`
		NumReplicas        int          `yaml:"num_replicas"`
		MaxOngoingRequests int          `yaml:"max_ongoing_requests"`
		UserConfig         *batching    `yaml:"user_config,omitempty"`
		RayActorOptions    actorOptions `yaml:"ray_actor_options"`
	}
	batching struct {
		MaxBatchSize      int     `yaml:"max_batch_size"`
		BatchWaitTimeoutS float64 `yaml:"batch_wait_timeout_s"`
	}
	actorOptions struct {
		NumCPUs   float64            `yaml:"num_cpus"`
		NumGPUs   float64            `yaml:"num_gpus,omitempty"`
		Resources map[string]float64 `yaml:"resources,omitempty"`
	}
)

// What the module in Python reads.
type (
	arguments struct {
		Models []modelSpec `yaml:"models"`
	}
	modelSpec struct {
		Model     string         `yaml:"model"`
		Outputs   []string       `yaml:"outputs"`
		Threshold *float64       `yaml:"threshold,omitempty"` // the raw certainty from which on it answers; absent for the last
		Pipelines []pipelineSpec `yaml:"pipelines"`
	}
	pipelineSpec struct {
		Weight float64     `yaml:"weight"`
		Stages []stageSpec `yaml:"stages"`
	}
	stageSpec struct {
		Name    string   `yaml:"name"`
		Model   string   `yaml:"model"`
		Inputs  []string `yaml:"inputs,omitempty"` // if absent, those of the model
		Outputs []string `yaml:"outputs,omitempty"`
		Threads int      `yaml:"threads,omitempty"` // of a device kind of CPU threads
	}
)
