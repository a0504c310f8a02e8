# What the tests of a chapter are: for each label a program LABEL_NN_name, of sources in tests/NN_name.
# What a table cannot say, a CMakeLists.txt in that folder says.

# chapter_tests(NN_name LABEL sources ... LABEL sources ...). Those of `code` and `grad` call the
# chapter's code and start no program; `code` has the label unit. `planted` is the chapter's program
# with planted mistakes, which tests of `equiv` start as LADDER_PLANTED.
function(chapter_tests chapter)
  get_property(chapters GLOBAL PROPERTY LADDER_CHAPTERS)
  if(NOT ";${chapters};" MATCHES ";${chapter}[ ;]")
    return()
  endif()
  if(LADDER_ONLY_CHAPTERS AND NOT chapter MATCHES "${LADDER_ONLY_CHAPTERS}")
    return()
  endif()
  set(kinds code equiv grad memory mpi slow threads unit)
  cmake_parse_arguments(ARG "" "planted" "${kinds}" ${ARGN})
  if(NOT LADDER_HAS_MPI)
    set(ARG_mpi "")
  endif()
  foreach(kind ${kinds})
    set(label ${kind})
    set(libs ladder_programs)
    set(processors 1)
    if(kind STREQUAL code)
      set(label unit)
    elseif(kind STREQUAL mpi)
      set(processors 2)
    endif()
    if(kind MATCHES "^(code|grad|threads)$")
      set(libs ladder_common)
    endif()
    list(TRANSFORM ARG_${kind} PREPEND ${chapter}/)
    if(ARG_${kind})
      ladder_test(${kind}_${chapter} LABEL ${label} PROCESSORS ${processors} LIBS ${libs}
        SOURCES ${ARG_${kind}})
    endif()
  endforeach()
  if(ARG_planted AND TARGET equiv_${chapter})
    set(name planted_${chapter})
    add_executable(${name} ${chapter}/${ARG_planted})
    target_link_libraries(${name} PRIVATE ladder_common ladder_compile_quickly)
    target_precompile_headers(${name} REUSE_FROM ladder_common)
    set_target_properties(${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_dependencies(equiv_${chapter} ${name})
    target_compile_definitions(equiv_${chapter} PRIVATE LADDER_PLANTED="$<TARGET_FILE:${name}>")
  endif()
endfunction()

# Of a chapter that trains nothing, from its folder: CODE calls its code, and PROGRAM runs programs,
# its own and what NEEDS names, and reads its refused.txt.
function(program_tests chapter)
  cmake_parse_arguments(ARG "" "" "CODE;PROGRAM;NEEDS" ${ARGN})
  ladder_test(unit_${chapter} LABEL unit LIBS ladder_common SOURCES ${ARG_CODE})
  ladder_test(program_${chapter} LABEL unit LIBS ladder_programs SOURCES ${ARG_PROGRAM}
    DEFINES LADDER_REFUSED="${CMAKE_CURRENT_SOURCE_DIR}/refused.txt")
  if(TARGET program_${chapter} AND TARGET ch${chapter})
    add_dependencies(program_${chapter} ch${chapter} ${ARG_NEEDS})
  endif()
endfunction()

# And what chapters 02 to 05 hold in the same words.
chapter_tests(01_sgd
  equiv resume.cpp
  unit bad_checkpoint.cpp bad_input.cpp data_files.cpp ending.cpp surroundings.cpp
  memory plan_only.cpp)
chapter_tests(02_adamw
  unit bad_input.cpp)
chapter_tests(03_schedules
  unit schedule.cpp)
chapter_tests(04_clipping
  equiv skipped.cpp
  unit clip.cpp)
chapter_tests(05_mixed_precision
  equiv overflow.cpp
  unit loss_scaler.cpp weights.cpp
  slow precision.cpp)
chapter_tests(06_checkpointing
  unit policies.cpp recompute.cpp)
# And what chapters 08 to 10 hold as it does: each runs on every chapter of tests/common/ranks.h.
chapter_tests(07_ddp
  equiv controls.cpp
  unit failures.cpp
  mpi mpi.cpp)
chapter_tests(10_zero3
  code buffers.cpp)
chapter_tests(12_pipeline_parallel
  code pipeline.cpp pipeline_check.cpp pipeline_clock.cpp)
chapter_tests(13_3d_parallel
  code mesh.cpp plan_text.cpp
  equiv same_bits.cpp
  unit plan_only.cpp
  memory bytes.cpp)
chapter_tests(14_stability
  equiv spike_run.cpp
  unit adaptive_clip.cpp spike_guard.cpp)
chapter_tests(15_batch_size
  unit batch_ramp.cpp noise_run.cpp noise_scale.cpp)
chapter_tests(16_fp8
  equiv controls.cpp
  unit fp8.cpp)
chapter_tests(18_offload
  unit bad_input.cpp offload_file.cpp)
chapter_tests(20_context_parallel
  unit ways.cpp)
chapter_tests(21_moe
  memory memory.cpp)
chapter_tests(22_expert_parallel
  equiv same_bits.cpp
  threads exchange.cpp
  memory bytes.cpp)
chapter_tests(26_packing
  code document_file.cpp isolation.cpp plan.cpp
  equiv same_bits.cpp
  memory memory.cpp)
chapter_tests(28_async_checkpoint
  threads async_save.cpp ../common/bad_disk.cpp)
chapter_tests(29_monitor
  equiv events.cpp rewind.cpp watch.cpp
  unit detectors.cpp event_file.cpp)
chapter_tests(30_hsdp
  memory report.cpp)
chapter_tests(32_optimizers
  code muon.cpp
  equiv resume.cpp)
chapter_tests(33_mesh
  code groups.cpp
  equiv same_bits.cpp
  planted planted.cpp
  slow factorizations.cpp)
chapter_tests(38_pretrain
  equiv same_bits.cpp
  planted planted.cpp)
