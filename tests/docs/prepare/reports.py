import shutil

import small_encoder

small_encoder.make()
job = small_encoder.validated("runs/b")
shutil.copyfile(small_encoder.MODEL, "model_q.onnx")
shutil.copyfile(f"{small_encoder.MODEL}.tranges", "model_q.onnx.tranges")
