// Package records imports the answers of a family of classifiers (formats/importer/records) into a profile.
package records
