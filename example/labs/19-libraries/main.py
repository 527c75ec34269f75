"""Converts readings with Ray Data, looks for a threshold with Tune, and adds up days with Train."""

import tempfile

import ray
import weather
from ray import train, tune
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

READINGS = [
    {"station": "pass", "degrees": 14.0, "unit": "F"},
    {"station": "pass", "degrees": 32.0, "unit": "F"},
    {"station": "harbour", "degrees": -5.0, "unit": "C"},
    {"station": "harbour", "degrees": 3.0, "unit": "C"},
    {"station": "valley", "degrees": 50.0, "unit": "F"},
    {"station": "valley", "degrees": 68.0, "unit": "F"},
]

ray.init(log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
readings = ray.data.from_items(READINGS, override_num_blocks=3)
converted = readings.map_batches(weather.convert, batch_size=2)
celsius = sorted(float(row["celsius"]) for row in converted.iter_rows())
print(f"coldest {round(celsius[0], 1)}", flush=True)

with tempfile.TemporaryDirectory() as results:
    trials = tune.Tuner(
        weather.objective,
        param_space={"celsius": celsius, "counted": 2, "threshold": tune.grid_search([10, 20])},
        run_config=tune.RunConfig(storage_path=results, verbose=0),
    )
    best = trials.fit().get_best_result("off", "min")
    print(f"threshold {best.config['threshold']}", flush=True)

    trainer = DataParallelTrainer(
        weather.train_loop,
        train_loop_config={"celsius": celsius},
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(storage_path=results),
    )
    print(f"rank 0 has {round(trainer.fit().return_value, 1)}", flush=True)
