package planspace

// Config is a number of devices of a kind that hold the same models and stages.
type Config struct {
	Kind     int    // index of the kind
	ModelSet uint32 // bits of the models, and above them of stages of chains
	Count    int    // number of devices
}

// DevicesWith returns the devices of a kind that hold a model or stage, by its bit. Devices are numbered within
// their kind, config by config.
func DevicesWith(configs []Config, kind, model int) (list []int) {
	firstDevice := 0
	for _, c := range ConfigsOfKind(configs, kind) {
		for n := range c.Count {
			if c.ModelSet&(1<<model) != 0 {
				list = append(list, firstDevice+n)
			}
		}
		firstDevice += c.Count
	}
	return list
}

// ConfigsOfKind returns the configs of a kind.
func ConfigsOfKind(configs []Config, kind int) (list []Config) {
	for _, c := range configs {
		if c.Kind == kind {
			list = append(list, c)
		}
	}
	return list
}

// WithCounts returns configs (sets of models on a device) with the given numbers of devices, without those of
// none.
func WithCounts(configs []Config, counts []int) (placement []Config) {
	for i, n := range counts {
		if n > 0 {
			placement = append(placement, Config{configs[i].Kind, configs[i].ModelSet, n})
		}
	}
	return placement
}
